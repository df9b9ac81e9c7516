"""A worker process without vLLM, for the tests of what surrounds it: real processes, sockets and signals, made-up answers.

It answers each prompt with [version + 2, seed % 7 + 2, END] and remembers in `STAND_IN_LOG` what it was asked. `STAND_IN_FAULT`
names one fault, which happens as often as its counter file allows: `die` by SIGKILL after the first prompt of a request, `hang`
there, `crash` with an exception, `refuse` to start.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

WORKER = Path(__file__).parents[2] / "tossup" / "engine" / "generate" / "vllm_worker.py"
spec = importlib.util.spec_from_file_location(
    "vllm_worker", WORKER
)  # by its path, as it runs: without torch in a second
assert spec is not None
assert spec.loader is not None
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
GONE, live_with, read, write = worker.GONE, worker.live_with, worker.read, worker.write

LOG, FAULT = Path(os.environ["STAND_IN_LOG"]), os.environ.get("STAND_IN_FAULT", "")


def note(**what: object) -> None:
    with LOG.open("a") as file:
        file.write(json.dumps(what) + "\n")


def fault(kind: str) -> None:
    times = LOG.with_suffix(".times")
    if kind != FAULT or int(times.read_text()) == 0:
        return
    times.write_text(str(int(times.read_text()) - 1))
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        time.sleep(600)
    raise RuntimeError("the made-up engine is broken")


def main() -> None:
    live_with(int(sys.argv[2]))
    sock = socket.socket(fileno=int(sys.argv[1]))
    version = -1
    start, _ = read(sock)
    config = json.loads(start["config"])
    note(
        did="start",
        pid=os.getpid(),
        architectures=config["architectures"],
        settings=start["settings"],
        environment=dict(os.environ),
    )
    fault("refuse")
    write(sock, {"ready": True, "room": int(os.environ.get("STAND_IN_ROOM", 1 << 20))})
    while True:
        message, _ = read(sock)
        if message["do"] == "push":
            names = []
            while not (part := read(sock))[0].get("end"):
                names.append(part[0]["name"])
            version = message["version"]
            note(did="push", version=version, names=names)
            write(sock, {"pushed": version, "missing": sorted(set(message["names"]) - set(names))})
            continue
        note(did=message["do"], prompts=message.get("prompts"))
        if message["do"] in ("sleep", "wake"):
            write(sock, {"ok": True})
            continue
        for i, seeds in enumerate(message["seeds"]):
            answers = [
                {"ids": [version + 2, seed % 7 + 2, 1], "logps": [-0.5, -1.5, -0.25], "finish": "stop"}
                for seed in seeds
            ]
            write(sock, {"prompt": i, "answers": answers})
            for kind in ("die", "hang", "crash"):
                fault(kind)
        write(sock, {"beat": True})
        write(sock, {"done": True, "version": version})


if __name__ == "__main__":
    try:
        main()
    except GONE:
        os._exit(0)
