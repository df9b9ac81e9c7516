"""The hook for programs in other languages: somebody else's judge, called by name of the language.

Only Python runs here. For another language register a function that sends the program to a service of your own:

    from tossup.verifiers.code import remote

    def judge_cpp(problem, program, language):        # problem: the fields of the reference, as they came
        reply = my_service.run(program, problem["input_output"])
        return Verdict(Ruling.CORRECT if reply.ok else Ruling.WRONG, reply.summary)

    remote.register("cpp", judge_cpp)

The function runs in the caller's process. What it raises becomes UNDECIDED with the exception as the reason, so that a
service that is down never counts as a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tossup.records import Verdict, undecided

RemoteJudge = Callable[[Mapping[str, Any], str, str], Verdict]
_judges: dict[str, RemoteJudge] = {}


def register(language: str, judge: RemoteJudge) -> None:
    """Judge programs of this language by this function from now on."""
    _judges[language.lower()] = judge


def judge(problem: Mapping[str, Any], program: str, language: str) -> Verdict:
    """The verdict of the judge of that language; UNDECIDED where there is none or where it fails."""
    remote = _judges.get(language)
    if remote is None:
        return undecided(f"{language} is not supported here; register a judge for it (tossup.verifiers.code.remote)")
    try:
        return remote(problem, program, language)
    except Exception as e:  # noqa: BLE001  (somebody else's code: its failure is not the program's)
        return undecided(f"the remote judge for {language} failed: {type(e).__name__}: {e}"[:300])
