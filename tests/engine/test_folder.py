"""What a killed process leaves half written is gone when the next one holds the folder."""

from __future__ import annotations

from pathlib import Path

from tossup.engine.folder import RunFolder


def test_half_written_files_and_folders_are_swept_away(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.held():
        for parent in (folder.root, folder.ledger, folder.checkpoints):
            (parent / ".part-half").mkdir(parents=True)
            (parent / ".part-half" / "state.pt").write_bytes(b"half a file")
            (parent / ".part-file").write_bytes(b"half a file")
            (parent / "step-00000001").mkdir()
        folder.sweep()
    left = sorted(str(path.relative_to(folder.root)) for path in folder.root.rglob("*"))
    assert left == [
        ".lock",
        "checkpoints",
        "checkpoints/step-00000001",
        "ledger",
        "ledger/step-00000001",
        "step-00000001",
    ]
