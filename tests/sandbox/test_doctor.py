"""`tossup doctor`: facts, the backend chosen, and a failure where there is none."""

from __future__ import annotations

import json
import os

import pytest

from tests.sandbox.test_failures import restricted
from tossup.cli import main
from tossup.sandbox import backends, machine


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--seconds", "0", *arguments])
    return end.value.code, capsys.readouterr().out


def test_json_holds_every_probe_and_attack(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = doctor(capsys, "--json")
    found = json.loads(text)
    assert code == 0
    assert found["sandbox"]["chosen"] == backends.choose("auto")
    assert [b["backend"] for b in found["sandbox"]["backends"]] == list(backends.ORDER)
    assert {"Landlock", "seccomp filter", "user namespace"} <= {probe["name"] for probe in found["probes"]}
    works = next(b for b in found["sandbox"]["backends"] if b["backend"] == found["sandbox"]["chosen"])
    assert len(works["attempts"]) > 20
    assert all(works["attempts"].values())


def test_a_person_reads_what_is_chosen_and_what_it_does_not_stop(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = doctor(capsys)
    chosen = backends.choose("auto")
    assert code == 0
    assert f"chosen            {chosen}" in text
    assert "does not stop" in text


def test_a_named_backend_and_a_wrong_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(capsys, "--backend", "docker")[0] == 2


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="written with x86_64 call numbers")
def test_without_any_backend_it_fails_and_shows_the_errno() -> None:
    script = """
    import json, sys
    from tossup.cli import main
    try:
        main(["doctor", "--seconds", "0", "--json"])
    except SystemExit as e:
        print(e.code)
    """
    unshare, landlock, chroot = 272, 444, 161
    text, code = restricted(script, unshare, landlock, chroot).strip().rsplit("\n", 1)
    found = json.loads(text)
    assert code == "1"
    assert found["sandbox"]["chosen"] == ""
    errors = {probe["name"]: probe["error"] for probe in found["probes"]}
    assert (errors["user namespace"], errors["Landlock"], errors["chroot"]) == ("EPERM", "EPERM", "EPERM")
    assert errors["memfd_create"] == ""


def test_secrets_are_named_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "the-value-itself")
    found = machine.secrets()
    assert "$SOME_API_KEY" in found
    assert "the-value-itself" not in str(found)
