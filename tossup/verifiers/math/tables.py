"""The names that the lexer knows: Unicode mathematics, functions, operators, letters, LaTeX commands."""

from __future__ import annotations

from tossup.verifiers.math.words import names

_UNICODE = {
    **dict.fromkeys("−–—‐‑‒﹣－", "-"),
    **dict.fromkeys("×·⋅∗⋆•✕", " \\cdot "),
    **dict.fromkeys("\u00a0\u2002\u2003\u2009\u200a\u202f", " "),
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff“”„\"", ""),
    "÷": "/", "∕": "/", "⁄": "/", "∶": ":", "：": ":", "，": ",", "；": ";", "（": "(", "）": ")", "′": "'", "’": "'",
    "≤": " \\le ", "⩽": " \\le ", "≦": " \\le ", "≥": " \\ge ", "⩾": " \\ge ", "≧": " \\ge ", "≠": " \\ne ",
    "≈": " \\approx ", "≅": " \\approx ", "≡": " \\equiv ", "π": " \\pi ", "∞": " \\infty ", "∪": " \\cup ",
    "∩": " \\cap ", "∈": " \\in ", "∅": " \\emptyset ", "±": " \\pm ", "∓": " \\mp ", "°": "^\\circ ", "º": "^\\circ ",
    "√": " \\sqrt ", "∛": " \\sqrt[3] ", "ℝ": " \\mathbb{R} ", "ℤ": " \\mathbb{Z} ", "ℕ": " \\mathbb{N} ",
    "¼": "\\frac{1}{4} ", "½": "\\frac{1}{2} ", "¾": "\\frac{3}{4} ", "⅓": "\\frac{1}{3} ", "⅔": "\\frac{2}{3} ",
    "⅕": "\\frac{1}{5} ", "⅛": "\\frac{1}{8} ", "⅜": "\\frac{3}{8} ", "⅝": "\\frac{5}{8} ", "⅞": "\\frac{7}{8} ",
    "⟨": " \\langle ", "⟩": " \\rangle ", "⌊": " \\lfloor ", "⌋": " \\rfloor ", "⌈": " \\lceil ", "⌉": " \\rceil ",
    "∴": " ", "∨": " \\lor ", "∧": " \\land ", "→": " \\to ", "∑": " \\sum ", "∫": " \\int ", "∏": " \\prod ",
    "∖": " \\setminus ", "。": ".", "、": ",",
    "＋": "+", "＝": "=", "＜": "<", "＞": ">", "／": "/", "％": "%", "．": ".",
    "¢": "\\text{ cents}",
    "€": " \\euro ", "£": " \\pounds ", "¥": " \\yen ", "α": " \\alpha ", "β": " \\beta ", "γ": " \\gamma ",
    "δ": " \\delta ", "ε": " \\epsilon ", "θ": " \\theta ", "λ": " \\lambda ", "μ": " \\mu ", "ρ": " \\rho ",
    "σ": " \\sigma ", "τ": " \\tau ", "φ": " \\phi ", "ϕ": " \\phi ", "ω": " \\omega ", "Δ": " \\Delta ", "Ω": " \\Omega ",
}  # fmt: skip


TABLE = str.maketrans(_UNICODE)


FUNCTIONS = names(
    "sin cos tan cot sec csc cis arcsin arccos arctan arccot asin acos atan sinh cosh tanh coth sech csch arcsinh arccosh"
    " arctanh asinh acosh atanh ln log lg exp sqrt cbrt abs"
)


OPERATORS = names("sum prod int iint iiint oint lim det gcd lcm max min sup inf arg deg dim ker Pr limsup liminf")


GREEK = names(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho varrho sigma tau"
    " upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega"
    " infty pi"
)


SYMBOLS = GREEK | names("hbar ell Re Im aleph odot partial nabla angle triangle prime square star dagger perp")


SPACING = names(
    "left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr displaystyle textstyle scriptstyle limits nolimits quad"
    " qquad enspace thinspace rm bf it cal nonumber notag middle hfill newline small large Large boldsymbol bm therefore"
    " mathstrut strut ensuremath checkmark blacksquare"
)


SAME = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom", "choose": "choose",
    "leq": "le", "leqslant": "le", "geq": "ge", "geqslant": "ge", "neq": "ne", "times": "cdot", "ast": "cdot",
    "div": "/", "lvert": "|", "rvert": "|", "vert": "|", "mid": "|", "colon": ":", "lbrace": "\\{", "rbrace": "\\}",
    "lbrack": "[", "rbrack": "]", "lparen": "(", "rparen": ")", "degree": "circ", "varnothing": "emptyset",
    "lt": "<", "gt": ">",
    "lor": "or", "vee": "or", "land": "and", "wedge": "and", "simeq": "approx", "cong": "approx", "doteq": "approx",
    "backslash": "setminus", "bar": "overline", "fbox": "boxed", "nicefrac": "frac", "sfrac": "frac",
    "tg": "tan", "ctg": "cot", "arctg": "arctan", "arcctg": "arccot", "bigcup": "cup", "bigcap": "cap",
    "infin": "infty", "dots": "...", "ldots": "...",
    "cdots": "...", "dotsc": "...",
    "Vert": "\\|", "lVert": "\\|", "rVert": "\\|", "implies": "to", "Rightarrow": "to", "rightarrow": "to",
    "longrightarrow": "to",
    "notin": "notin", "R": "RR",
}  # fmt: skip


TEXT_COMMANDS = names(
    "text textbf textit textrm textnormal textsf texttt mbox hbox mathrm mathbf mathit mathsf mathbb mathcal operatorname"
    " emph underline vec overrightarrow hat boldsymbol bm mathtt mathfrak"
)


BOLD_COMMANDS = names("mathbf boldsymbol bm mathit textbf")


WORD_COMMANDS = names("text textrm textnormal mbox hbox mathrm operatorname")


PLAIN_WORDS = {"pi": "pi", "infinity": "infty", "inf": "infty", "oo": "infty", "union": "cup"}
