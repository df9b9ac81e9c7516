"""(problem, response) -> Verdict."""
