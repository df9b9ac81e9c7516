"""From a task and a program to a verdict, through the sandbox.

    host (here)                             jailed processes
    StdinTask   run_many, one per case  ->  the program itself; what it prints is compared here
    CallsTask   run                     ->  candidate.calls: gets arguments, gives results; compared here
    ChecksTask  converse                ->  candidate.serve and testing.run; the verdict comes from the tests' process only

No expected value enters a process that holds model code. A failure of the sandbox is UNDECIDED; whatever the program does to
itself is WRONG.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from threading import Lock
from typing import Any

from tossup.records import Ruling, TossupError, Verdict, correct, undecided, wrong
from tossup.sandbox import Limits, Outcome, Result, Sandbox
from tossup.sandbox.program import Program
from tossup.verifiers.code.codec import CodecError, Json
from tossup.verifiers.code.compare import output_difference, shown
from tossup.verifiers.code.decode import Decoder
from tossup.verifiers.code.library import install
from tossup.verifiers.code.task import Bounds, Call, CallsTask, ChecksTask, StdinTask, Task

JAILED = ("codec", "encode", "decode", "library", "wire", "candidate", "minipytest", "proxy", "testing", "rehearsal")
"""The files that the jailed processes load, each after those that it imports."""
ENTRIES = ("calls", "serve", "run")
"""What of them the programs that we start call: see `jailed.py`."""
TESTS_CPU_SECONDS = 20.0
"""CPU time for trusted test code, beyond what the program may use itself."""
MAX_CONTAINERS, MAX_ELEMENTS = 300_000, 3_000_000
"""Of one result: a message of a few megabytes may otherwise open out to a gigabyte in the judge's memory."""
PROBE = 8
"""Calls that a program makes before the rest of a long list: most wrong programs fail in these, and many a wrong program
runs until its CPU limit in a later one. Every run starts from the first call, so that nothing differs but the end."""
KILLED = {Outcome.TIMEOUT_CPU, Outcome.TIMEOUT_WALL, Outcome.MEMORY, Outcome.OUTPUT, Outcome.POLICY}

install()


class Judge:
    """Judges programs in sandboxes that it starts when they are first needed: one plain, one with NumPy loaded.

    `backend` as for `Sandbox`; under "none" every verdict's reason says that nothing was isolated. Safe to call from many
    threads.
    """

    def __init__(self, backend: str = "auto", workers: int | None = None) -> None:
        self._backend, self._workers = backend, workers
        self._boxes: dict[bool, Sandbox] = {}
        self._preludes: dict[tuple[str, ...], str] = {}
        self._programs = {name: Program(f"import code_judge; code_judge.{name}()", many=True) for name in ENTRIES}
        self._lock = Lock()

    def judge(self, task: Task, program: str, bounds: Bounds) -> Verdict:
        """Judge a program."""
        program = program.removeprefix("\ufeff")  # a byte order mark, which Python's own loader drops as well
        try:
            program.encode()
        except UnicodeEncodeError:
            return wrong("the program is not valid Unicode text")
        match task:
            case StdinTask():
                verdict = self._stdin(task, program, bounds)
            case CallsTask():
                verdict = self._calls(task, program, bounds)
            case ChecksTask():
                verdict = self._checks(task, program, bounds)
        isolated = "not isolated: " if self._backend == "none" else ""
        return replace(verdict, reason=isolated + _one_line(verdict.reason))

    def close(self) -> None:
        """End all worker processes. The next judgement starts new ones."""
        with self._lock:
            boxes, self._boxes = self._boxes, {}
        for box in boxes.values():
            box.close()
        for program in self._programs.values():
            program.close()

    def _box(self, *sources: str) -> Sandbox:
        numpy = any("numpy" in source for source in sources)
        with self._lock:
            if numpy not in self._boxes:
                package = resources.files(__package__)
                modules = {f"{__package__}.{name}": str(package / f"{name}.py") for name in JAILED}
                modules["code_judge"] = str(package / "jailed.py")
                preload = ("numpy",) if numpy else ()
                try:
                    self._boxes[numpy] = Sandbox(self._backend, self._workers, preload, modules=modules)
                except ValueError as e:
                    raise TossupError(f"the sandbox for programs (TOSSUP_SANDBOX): {e}") from e
            return self._boxes[numpy]

    def _stdin(self, task: StdinTask, program: str, bounds: Bounds) -> Verdict:
        if not task.cases:
            return undecided("the problem has no tests")
        faults: list[str] = []
        longest = max(len(c.expected) for c in task.cases)
        limits = _limits(bounds, output_bytes=min(bounds.output_mb << 20, (1 << 20) + 16 * longest))

        def go_on(index: int, result: Result) -> bool:
            case = task.cases[index]
            if result.outcome is Outcome.FINISHED:
                fault = output_difference(case.expected, result.stdout, task.tolerance)
            else:
                fault = result.reason
            if fault:
                faults.append(fault)
            return not fault

        stdins = (c.given.encode("utf-8", "surrogatepass") for c in task.cases)
        results = self._box(program).run_many(program, stdins, limits=limits, go_on=go_on)
        if results[-1].outcome is Outcome.INFRA:
            return undecided(f"sandbox: {results[-1].reason}")
        if faults:
            return wrong(f"{_place(len(results) - 1, len(task.cases))}: {faults[0]}")
        return correct(f"{len(results)} of {len(task.cases)} tests passed")

    def _calls(self, task: CallsTask, program: str, bounds: Bounds) -> Verdict:
        if not task.calls:
            return undecided("the problem has no tests")
        if fault := self._fault_of_prelude(task.prelude):
            return undecided(f"the problem's own definitions do not run here: {fault}")
        try:
            task.arguments  # noqa: B018  (written here, once, so that a failure is told from one of the program)
        except CodecError as e:
            return undecided(f"the tests' arguments cannot be passed on: {e}")
        if len(task.calls) > 2 * PROBE:
            verdict = self._first_calls(task, PROBE, program, bounds)
            if verdict.ruling is not Ruling.CORRECT:
                return verdict
        return self._first_calls(task, len(task.calls), program, bounds)

    def _first_calls(self, task: CallsTask, count: int, program: str, bounds: Bounds) -> Verdict:
        about = {"prelude": task.prelude, "solution": program, "entry": task.entry, "method": task.method}
        payload = f'{{"calls": [{", ".join(task.arguments[:count])}], {json.dumps(about)[1:]}'
        limits = _limits(bounds, output_bytes=bounds.output_mb << 20)
        result = self._box(program, *task.prelude).run(self._programs["calls"], payload.encode(), limits=limits)
        if result.outcome is Outcome.INFRA:
            return undecided(f"sandbox: {result.reason}")
        *answers, _ = result.stdout.split(b"\n", count + 1)
        return _verdict_of_answers(task.calls, count, answers, result)

    def _fault_of_prelude(self, prelude: tuple[str, ...]) -> str:
        """Why the trusted code that goes before every program fails by itself; "" where it runs.

        Tried once for each prelude, in a run without model code: said by a program, it could not be believed.
        """
        if not prelude:
            return ""
        if prelude not in self._preludes:
            result = self._box(*prelude).run("\n".join(prelude))
            if result.outcome is Outcome.INFRA:
                return f"sandbox: {result.reason}"
            self._preludes[prelude] = "" if result.outcome is Outcome.FINISHED else result.reason
        return self._preludes[prelude]

    def _checks(self, task: ChecksTask, program: str, bounds: Bounds) -> Verdict:
        if fault := self._fault_of_prelude(task.prelude):
            return undecided(f"the problem's own definitions do not run here: {fault}")
        nonce = secrets.token_hex(16)
        tests = {
            "nonce": nonce,
            "prelude": task.prelude,
            "helpers": task.helpers,
            "names": task.names,
            "code": task.code,
            "alias": task.alias,
            "mode": "pytest" if task.pytest else "script",
            "values_only": task.values_only,
        }
        limits = _limits(bounds, output_bytes=1 << 16)
        spare = Bounds(bounds.cpu_seconds + TESTS_CPU_SECONDS, limits.wall, 2 * bounds.memory_mb, bounds.output_mb)
        talk = self._box(program, task.code, *task.prelude, *task.helpers).converse(
            self._programs["serve"],
            self._programs["run"],
            candidate_stdin=json.dumps({"prelude": task.prelude, "solution": program}).encode(),
            tests_stdin=json.dumps(tests).encode(),
            candidate_limits=limits,
            tests_limits=_limits(spare, output_bytes=1 << 16),
        )
        for result in (talk.tests, talk.candidate):
            if result.outcome is Outcome.INFRA:
                return undecided(f"sandbox: {result.reason}")
        return _verdict_of_tests(talk.verdict, nonce, talk.candidate, talk.tests)


def _one_line(text: str) -> str:
    """A reason without what a program may have put there to break a line, a terminal or a file: control and half characters."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def _limits(bounds: Bounds, output_bytes: int) -> Limits:
    return Limits(
        cpu_seconds=bounds.cpu_seconds,
        wall_seconds=bounds.wall_seconds,
        memory_bytes=bounds.memory_mb << 20,
        output_bytes=output_bytes,
    )


def _place(index: int, count: int) -> str:
    return f"test {index + 1} of {count}"


def _verdict_of_answers(calls: Sequence[Call], count: int, lines: Sequence[bytes], result: Result) -> Verdict:
    """Compare the first answers, line by line, with what was wanted. The first line says whether the program loaded."""
    if not lines:
        return wrong(f"the program does not load: {result.reason or 'it ended'}")
    first = _parsed(lines[0])
    if first[0] != "loaded":
        return wrong(f"the program does not load: {_failure(first[1:])}")
    for i, call in enumerate(calls[:count]):
        if i + 1 >= len(lines):
            return wrong(f"{_place(i, len(calls))}: {result.reason or 'the program ended'}")
        fault = _fault(call, _parsed(lines[i + 1]))
        if fault:
            return wrong(f"{_place(i, len(calls))}: {fault}")
    return correct(f"{count} of {len(calls)} tests passed")


def _parsed(line: bytes) -> list[Json]:
    """An answer, or one that says that the line is none; never a failure of ours, as model code may write anything."""
    if line.count(b"[") + line.count(b"{") > MAX_CONTAINERS or line.count(b",") > MAX_ELEMENTS:
        return ["lost", "too many parts"]
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    return answer if isinstance(answer, list) and answer and isinstance(answer[0], str) else ["lost", "no valid answer"]


def _fault(call: Call, answer: list[Json]) -> str:
    """What is wrong with the answer to one call; empty when it is right."""
    if answer[0] != "ok" or len(answer) != 2:
        return f"expected {call.wanted}, got {_failure(answer)}"
    try:
        (got,) = Decoder(tree=True).document(answer[1])
    except (CodecError, ValueError) as e:
        return f"expected {call.wanted}, got a result that cannot be read: {e}"
    return "" if _is_right(call, got) else f"expected {call.wanted}, got {shown(got)}"


def _is_right(call: Call, got: Any) -> bool:
    try:
        return call.check(got)
    except (TypeError, ValueError, ArithmeticError, RecursionError, LookupError, AttributeError):
        return False  # comparing such values raises, as it would in the assert


def _failure(answer: Sequence[Json]) -> str:
    """An answer other than a result, in words."""
    match answer:
        case ["raise", [str(kind), *_], str(message)]:
            return f"{kind[:80]}: {message[:200]}".rstrip(": ")
        case ["lost", str(message)]:
            return f"a result that cannot be passed on: {message[:200]}"
    return "no valid answer"


def _verdict_of_tests(verdict: bytes, nonce: str, candidate: Result, tests: Result) -> Verdict:
    """Read the verdict pipe: the last line with the nonce counts. Without one, the tests have not even begun."""
    ruling, reason = _said(verdict, nonce)
    died = f"{candidate.reason}; " if candidate.outcome in KILLED else ""
    match ruling:
        case "pass":
            return correct(reason)
        case "fail":
            return wrong(died + reason)
        case "started" if not died:
            return wrong(f"the tests ended without a verdict on what the program returned: {tests.reason}")
    if died:
        return wrong(candidate.reason)
    return undecided(reason or f"the tests did not start: {tests.reason}")


def _said(verdict: bytes, nonce: str) -> tuple[str, str]:
    said = ("", "")
    for text in verdict.splitlines():
        try:
            line = json.loads(text)
            if secrets.compare_digest(line["nonce"], nonce):
                said = (str(line["ruling"]), str(line["reason"]))
        except (ValueError, KeyError, TypeError):  # a line that the process did not live to finish
            continue
    return said
