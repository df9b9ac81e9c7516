"""Any text whatever gets a verdict; an equivalent answer keeps the ruling and a changed one flips it."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tossup.records import Problem, Ruling, Verdict
from tossup.verifiers import get

PIECES = [
    "\\boxed{", "}", "<answer>", "</answer>", "<think>", "</think>", "####", "The answer is ", "(A)", "B)", "A", " and ",
    "or", "True", "no", "=", ":", "->", "[", "]", "{", '"', ",", "\n", "$", "\\text{", "\ud800", "\u2028", "0.5", "1/2", "٣",
]  # fmt: skip

any_text = st.one_of(st.text(max_size=300), st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
words = st.text("abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=8).filter(
    lambda w: w not in {"and", "is", "to", "an", "the"}
)


def ruling(verifier, reference, response, **meta):
    return get(verifier).judge(Problem("p", "", reference, verifier, meta=meta), response).ruling


@settings(deadline=None)
@given(any_text, any_text, st.sampled_from(["exact", "choice", "logic"]), st.lists(words, max_size=5))
def test_any_text_gets_a_verdict(reference, response, verifier, options):
    verdict = get(verifier).judge(Problem("p", response, reference, verifier, meta={"options": options}), response)
    assert isinstance(verdict, Verdict)
    assert "\n" not in verdict.reason


@settings(max_examples=50, deadline=None)
@given(st.lists(words, min_size=2, max_size=6, unique=True), st.data())
def test_choice_takes_the_key_in_each_spelling_and_no_other_option(options, data):
    key = data.draw(st.integers(0, len(options) - 1))
    other = data.draw(st.integers(0, len(options) - 1).filter(lambda i: i != key))
    spellings = ["\\boxed{{{}}}", "The answer is ({}).", "<answer>{}</answer>", "#### {}", "**{}**"]
    spelling = data.draw(st.sampled_from(spellings))
    letter, wrong_letter = "ABCDEF"[key], "ABCDEF"[other]
    assert ruling("choice", letter, spelling.format(letter), options=options) is Ruling.CORRECT
    assert ruling("choice", letter, spelling.format(wrong_letter), options=options) is Ruling.WRONG
    assert ruling("choice", letter, f"<answer>{options[key]}</answer>", options=options) is Ruling.CORRECT
    assert ruling("choice", letter, f"<answer>{options[other]}</answer>", options=options) is Ruling.WRONG
    assert ruling("choice", options[key], spelling.format(letter), options=options) is Ruling.CORRECT


@settings(max_examples=50, deadline=None)
@given(st.lists(words, min_size=1, max_size=6), st.permutations(range(6)))
def test_a_sequence_has_an_order(tokens, order):
    assume(not (len(tokens) == 1 and tokens[0] in {"true", "false", "yes", "no"}))
    key = " ".join(tokens)
    shuffled = [tokens[i] for i in order if i < len(tokens)]
    expected = Ruling.CORRECT if shuffled == tokens else Ruling.WRONG
    for between in (" ", ", ", " -> "):
        assert ruling("logic", key, f"<answer>{between.join(tokens)}</answer>", kind="sequence") is Ruling.CORRECT
        assert ruling("logic", key, f"<answer>{between.join(shuffled)}</answer>", kind="sequence") is expected
    assert ruling("logic", key, f"<answer>{key} {tokens[0]}</answer>", kind="sequence") is Ruling.WRONG


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(words, words, min_size=1, max_size=5), st.data())
def test_an_assignment_has_none(pairs, data):
    key = ", ".join(f"{name} = {value}" for name, value in pairs.items())
    shuffled = data.draw(st.permutations(list(pairs.items())))
    said = " and ".join(f"{name} is {value}" for name, value in shuffled)
    assert ruling("logic", key, f"<answer>{said}</answer>") is Ruling.CORRECT
    name = data.draw(st.sampled_from(sorted(pairs)))
    changed = ", ".join(f"{n}: {v + 'x' if n == name else v}" for n, v in shuffled)
    assert ruling("logic", key, f"<answer>{changed}</answer>") is Ruling.WRONG
    missing = ", ".join(f"{n}: {v}" for n, v in shuffled if n != name)
    assert ruling("logic", key, f"<answer>{missing}</answer>") is Ruling.WRONG
