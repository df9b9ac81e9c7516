"""The vLLM process. A script that imports vLLM, torch and the standard library, and nothing of tossup, so that any Python
environment with vLLM can run it; `vllm_generator` starts it and is the only one that talks to it.

One socket, one request at a time. A frame is two lengths, a JSON object and bytes (a tensor's, where the object names one):

    start     {config, settings}      -> {ready, room, vllm, torch}
    generate  {prompts, seeds, …}     -> {beat} now and then, {prompt, answers} for each prompt, {done, version}
    push      {version, names, tied}, then tensors {name, dtype, shape}, then {end}     -> {pushed, missing}
    sleep, wake                       -> {ok}

An error ends the process with a traceback on stderr, which its parent keeps; so does the end of the socket, for then the
parent is gone. The weights arrive while vLLM loads them, one tensor at a time, and the prefix cache is emptied after that:
what it holds was computed with the old ones. A push is whole when every name that was announced came, and vLLM filled every
parameter of its own; `missing` are those for which that is not so, and then the weights have no version.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

LENGTHS = struct.Struct("!IQ")
BEAT_S = 1.0
"""A process that generates says so at least this often, once a decoding step at most."""


class ClosedError(Exception):
    """The other side has closed the socket."""


GONE = (ClosedError, BrokenPipeError, ConnectionResetError)
"""How one learns that there is no other side."""


def write(sock: socket.socket, message: dict[str, Any], payload: bytes | memoryview = b"") -> None:
    """Send one frame."""
    text = json.dumps(message).encode()
    sock.sendall(LENGTHS.pack(len(text), len(payload)) + text)
    if len(payload):
        sock.sendall(payload)


def read(sock: socket.socket) -> tuple[dict[str, Any], bytearray]:
    """Receive one frame.

    Raises:
        ClosedError: there is no other side any more.
    """
    text, payload = LENGTHS.unpack(_exactly(sock, LENGTHS.size))
    message: dict[str, Any] = json.loads(bytes(_exactly(sock, text)))
    return message, _exactly(sock, payload)


def _exactly(sock: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        n = sock.recv_into(view[got:])
        if n == 0:
            raise ClosedError
        got += n
    return data


class Worker:
    """vLLM and the version of its weights."""

    def __init__(self, sock: socket.socket, config: str, settings: dict[str, Any]) -> None:
        from vllm import LLM

        self.sock, self.version = sock, -1
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(config, encoding="utf-8")
            self.llm = LLM(
                model=folder,
                load_format="dummy",  # the weights come by `push`
                skip_tokenizer_init=True,
                generation_config="vllm",  # not the model's own defaults: its top_p and top_k would truncate what is sampled
                logprobs_mode="processed_logprobs",  # at the sampling temperature
                enable_prefix_caching=True,  # the G answers to a prompt share it
                disable_log_stats=True,
                **settings,
            )

    def generate(self, m: dict[str, Any]) -> None:
        """Answer prompts, each handed over as soon as its last answer has ended."""
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        engine = self.llm.llm_engine
        for i, (ids, seeds, limit) in enumerate(zip(m["prompts"], m["seeds"], m["limits"], strict=True)):
            for k, seed in enumerate(seeds):
                params = SamplingParams(
                    temperature=m["temperature"],
                    max_tokens=limit,
                    seed=seed,
                    logprobs=0,  # of the sampled token, and no other
                    stop_token_ids=m["ends"],
                    ignore_eos=True,  # the end tokens are those of the line above, as in the trainer
                    detokenize=False,
                    output_kind=RequestOutputKind.FINAL_ONLY,
                )
                engine.add_request(f"{i}/{k}", TokensPrompt(prompt_token_ids=ids), params)
        answers: list[dict[int, Any]] = [{} for _ in m["prompts"]]
        said = time.monotonic()
        while engine.has_unfinished_requests():
            for output in engine.step():
                i, k = map(int, output.request_id.split("-")[0].split("/"))
                answers[i][k] = _answer(output)
                if len(answers[i]) == len(m["seeds"][i]):
                    write(self.sock, {"prompt": i, "answers": [answers[i][k] for k in sorted(answers[i])]})
                    said = time.monotonic()
            if time.monotonic() - said > BEAT_S:
                write(self.sock, {"beat": True})
                said = time.monotonic()
        write(self.sock, {"done": True, "version": self.version})

    def push(self, version: int, names: Sequence[str], tied: Sequence[str]) -> None:
        """Take new weights as they arrive, and say which are missing."""
        received: set[str] = set()
        weights = self._arriving(received)
        (unfilled,) = self.llm.collective_rpc(_reload, args=(weights, tied))
        for _ in weights:  # whatever the model had no use for must not be taken for the next request
            pass
        if not self.llm.reset_prefix_cache():
            raise RuntimeError("vLLM's prefix cache could not be emptied: it would mix old weights with new ones")
        missing = sorted(set(names) - received | unfilled)
        self.version = -1 if missing else version
        write(self.sock, {"pushed": version, "missing": missing})

    def _arriving(self, received: set[str]) -> Iterator[tuple[str, Any]]:
        import torch

        while True:
            message, payload = read(self.sock)
            if message.get("end"):
                return
            received.add(message["name"])
            flat = torch.frombuffer(payload, dtype=getattr(torch, message["dtype"]))
            yield message["name"], flat.reshape(message["shape"])

    def sleep(self) -> None:
        """Give the device's memory back; the weights wait in the host's."""
        self.llm.sleep(level=1)
        write(self.sock, {"ok": True})

    def wake(self) -> None:
        """Take it again."""
        self.llm.wake_up()
        write(self.sock, {"ok": True})


def _reload(worker: Any, weights: Iterator[tuple[str, Any]], tied: Sequence[str]) -> set[str]:
    """Load weights in place, and return the model's parameters that nothing was loaded into.

    vLLM's `reload_weights` knows them and writes no more than a warning, so this listens to what the model answers it. Of
    the `tied`, second names of one tensor, some models know only the first: they have no head of their own.
    """
    model = worker.get_model()
    unfilled = {name for name, _ in model.named_parameters()}
    known = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    spare = {name for name in tied if not any(own.endswith(name) for own in known)}
    load = model.load_weights

    def listening(weights: Iterator[tuple[str, Any]]) -> Any:
        loaded = load((name, tensor) for name, tensor in weights if name not in spare)
        unfilled.difference_update(unfilled if loaded is None else loaded)  # None: a model that does not keep count
        return loaded

    model.load_weights = listening
    try:
        worker.reload_weights(weights_iterator=weights, is_checkpoint_format=True)
    finally:
        del model.load_weights
    return unfilled


def _answer(output: Any) -> dict[str, Any]:
    (answer,) = output.outputs
    ids: Sequence[int] = list(answer.token_ids)
    logps = [position[token].logprob for position, token in zip(answer.logprobs, ids, strict=True)]
    return {"ids": ids, "logps": logps, "finish": answer.finish_reason}


def serve(sock: socket.socket) -> None:
    """Do as asked until the other side closes the socket."""
    import torch
    import vllm

    first, _ = read(sock)
    worker = Worker(sock, first["config"], first["settings"])
    room = worker.llm.llm_engine.model_config.max_model_len
    write(sock, {"ready": True, "room": room, "vllm": vllm.__version__, "torch": torch.__version__})
    while True:
        message, _ = read(sock)
        kind = message.pop("do")
        if kind == "generate":
            worker.generate(message)
        elif kind == "push":
            worker.push(message["version"], message["names"], message["tied"])
        elif kind == "sleep":
            worker.sleep()
        elif kind == "wake":
            worker.wake()
        else:
            raise ValueError(f"unknown request {kind!r}")


def live_with(parent: int) -> None:
    """End when the parent does, even while vLLM starts or computes, and not before.

    A scheduler that wants the machine back sends SIGTERM to all processes of a job, while the parent still finishes its step.
    """
    signal.signal(signal.SIGTERM, lambda *_: None)  # unlike an ignored one, not handed on to what this starts
    threading.Thread(target=_leave_with, args=[parent], daemon=True).start()


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def main() -> None:
    """`vllm_worker.py FD PARENT`: serve the socket that was inherited as FD, for as long as the process PARENT lives."""
    live_with(int(sys.argv[2]))
    try:
        serve(socket.socket(fileno=int(sys.argv[1])))
    except GONE:
        os._exit(0)  # the parent is gone: nothing is to be saved, and vLLM's own way out can take its time


if __name__ == "__main__":
    main()
