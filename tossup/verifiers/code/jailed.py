"""What programs in the jail import, as `code_judge`: the two ends of a judged run, loaded once before any fork."""

from tossup.verifiers.code.candidate import calls, serve
from tossup.verifiers.code.library import install
from tossup.verifiers.code.rehearsal import rehearse
from tossup.verifiers.code.testing import run

__all__ = ["calls", "run", "serve"]

install()
rehearse()
