"use strict";
// The group scorer. One state; every change ends in update(), which writes all of the page that depends on it.
{
  const { make, signed } = tossup;
  const { start, pool } = tossup.data;
  const at = (id) => document.getElementById(id);
  const MOST_DIGITS = 300;

  // An answer that was stamped by hand has `hand`, one of STAMPS, and `was`, its stamp before; else the check decides.
  const state = { answers: [], size: 0, p: 0.5, g: 4 };

  // ---- the check: numbers exactly, as fractions of big integers; other text letter by letter

  function fraction(text) {
    const parts = text.split("/");
    if (parts.length > 2) return null;
    const read = parts.map((part) => {
      const plain = /^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$/.test(part) ? part.replaceAll(",", "") : part;
      const found = /^([+-]?)(\d*)(?:\.(\d*))?$/.exec(plain);
      if (!found || !(found[2] || found[3])) return null;
      const decimals = found[3] ?? "";
      return { top: BigInt((found[1] === "-" ? "-" : "") + (found[2] + decimals || "0")), under: 10n ** BigInt(decimals.length) };
    });
    if (read.includes(null)) return null;
    const [a, b = { top: 1n, under: 1n }] = read;
    return b.top === 0n ? null : { top: a.top * b.under, under: a.under * b.top };
  }

  const plain = (text) => text.normalize("NFKC").replace(/[\u2212\u2013]/g, "-").replace(/[\s$]/g, "").replace(/\.$/, "").toLowerCase();

  function check(answer, key) {
    const [a, k] = [plain(answer), plain(key)];
    if (k === "") return { right: false, why: "there is no key" };
    if (a === "") return { right: false, why: "no answer" };
    if (a.length > MOST_DIGITS) return { right: false, why: "too long to be read" };
    if (a === k) return { right: true, why: "equals the key" };
    const [x, y] = [fraction(a), fraction(k)];
    if (x === null || y === null) return { right: false, why: "is not the key" };
    const equal = x.top * y.under === y.top * x.under;
    return { right: equal, why: equal ? "the same number as the key" : "another number than the key" };
  }

  // ---- stamps: right, wrong, or undecided, which is no reward at all. Pressed, a stamp turns to the opposite, then to
  // undecided, then back.

  const OPPOSITE = { right: "wrong", wrong: "right" };
  const STAMPS = { right: ["RIGHT", "correct"], wrong: ["WRONG", "wrong"], undecided: ["UNDECIDED", "undecided"] };
  const REWARDS = { right: 1, wrong: 0, undecided: null };

  // ---- the cards of the answers, made once and then only written to

  const cards = [];

  function card(i) {
    const input = make("input", { type: "text", spellcheck: "false", "aria-label": `Answer ${i + 1}` });
    const stamp = make("button", { type: "button", class: "stamp" });
    const push = make("span", { class: "push" });
    const why = make("small");
    const number = make("span", { class: "quiet" }, `answer ${i + 1}`);
    const item = make("li", { class: "answer" }, make("header", {}, number, push), make("div", { class: "line" }, input, stamp), why);
    input.addEventListener("input", () => {
      state.answers[i] = { text: input.value, hand: null };
      changed();
    });
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      cards[(i + 1) % state.size].input.focus();
    });
    stamp.addEventListener("click", () => {
      state.answers[i].was ??= judged(i).ruling;
      state.answers[i].hand = next(i);
      changed();
    });
    return { item, input, stamp, push, why };
  }

  function judged(i) {
    const { text, hand } = state.answers[i];
    if (hand === "undecided") return { ruling: hand, why: "the checker could not say: left out of mean and std" };
    if (hand !== null) return { ruling: hand, why: "stamped by hand" };
    const { right, why } = check(text, at("key").value);
    return { ruling: right ? "right" : "wrong", why };
  }

  function next(i) {
    const { ruling } = judged(i);
    const was = state.answers[i].was ?? ruling;
    return ruling === was ? (OPPOSITE[was] ?? "right") : ruling === "undecided" ? was : "undecided";
  }

  function resize(size) {
    state.size = Math.min(Math.max(Math.round(size), Number(at("size").min)), Number(at("size").max));
    while (state.answers.length < state.size) state.answers.push({ text: "", hand: null });
    while (cards.length < state.size) cards.push(card(cards.length));
    at("answers").replaceChildren(...cards.slice(0, state.size).map((c) => c.item));
    at("size").value = state.size;
    at("size-now").textContent = state.size;
  }

  // ---- what the group teaches

  function score() {
    const verdicts = Array.from({ length: state.size }, (_, i) => judged(i));
    const rewards = verdicts.map((v) => REWARDS[v.ruling]);
    const decided = rewards.filter((r) => r !== null);
    const right = decided.filter((r) => r === 1).length;
    const n = decided.length;
    const degenerate = n < 2 || right === 0 || right === n; // of the rewards themselves, never of the std
    const mean = n ? right / n : null;
    const std = n < 2 ? null : degenerate ? 0 : Math.sqrt(mean * (1 - mean));
    const scale = at("divide").checked && !degenerate ? std : 1;
    const centred = rewards.map((r) => (r === null || n < 2 ? null : r - mean));
    return { verdicts, rewards, n, right, degenerate, mean, std, centred, advantages: centred.map((c) => (c === null ? null : c / scale)) };
  }

  function banner(s) {
    const n = s.n;
    const out = state.size - n;
    const spent = `${state.size} answers were generated for nothing`;
    if (n < 2) {
      return ["Degenerate: this group teaches nothing.", `${n ? "Only one answer is" : "No answer is"} decided, so there is nothing to compare: no answer is pushed, and ${spent}. Undecided says nothing of the answer, so it is not counted as wrong.`];
    }
    const rest = out ? ` ${out === 1 ? "The undecided answer is" : `The ${out} undecided answers are`} left out of mean and std, and not trained on.` : "";
    if (!s.degenerate) {
      const up = s.right === 1 ? "1 right answer beats it and is pushed up" : `${s.right} right answers beat it and are pushed up`;
      const down = n - s.right === 1 ? "1 wrong one falls short and is pushed down" : `${n - s.right} wrong ones fall short and are pushed down`;
      return ["This group teaches.", `Par is ${s.mean.toFixed(3)}: ${up}, ${down}. The pushes add up to zero.${rest}`];
    }
    const all = out ? `All ${n} decided answers are` : `All ${n} answers are`;
    return s.right
      ? ["Degenerate: this group teaches nothing.", `${all} right, so the mean is 1 and each sits exactly on par: every advantage is 0, and ${spent}. The problem is too easy for this policy.`]
      : ["Degenerate: this group teaches nothing.", `${all} wrong, so the mean is 0 and each sits exactly on par: every advantage is 0, and ${spent}. The problem is too hard for this policy, or its key is wrong.`];
  }

  const pushOf = (value) => (value > 0 ? "up" : value < 0 ? "down" : "none");

  function update() {
    const s = score();
    s.verdicts.forEach((verdict, i) => {
      const { item, input, stamp, push, why } = cards[i];
      const [word, colour] = STAMPS[verdict.ruling];
      const kind = pushOf(s.advantages[i]);
      item.className = `answer ${kind}`;
      if (input.value !== state.answers[i].text) input.value = state.answers[i].text;
      stamp.className = `stamp ${colour}`;
      stamp.textContent = word;
      stamp.setAttribute("aria-label", `Answer ${i + 1} is ${word.toLowerCase()}; press for ${next(i)}`);
      push.className = `push ${kind}`;
      push.textContent = s.advantages[i] === null ? "left out" : `${{ up: "▲ ", down: "▼ ", none: "" }[kind]}A = ${signed(s.advantages[i])}`;
      why.textContent = `${s.rewards[i] === null ? "no reward" : `reward ${s.rewards[i]}`}: ${verdict.why}`;
    });
    const [title, text] = banner(s);
    at("banner").className = s.degenerate ? "banner degenerate" : "banner";
    if (at("banner").textContent !== title + text) at("banner").replaceChildren(make("b", {}, title), text);
    const ups = s.advantages.filter((a) => a > 0);
    const downs = s.advantages.filter((a) => a < 0);
    at("mean").textContent = s.mean === null ? "–" : s.mean.toFixed(3);
    at("mean-how").textContent = s.n === state.size ? `${s.right} right of ${s.n}` : `${s.right} right of ${s.n} decided`;
    at("std").textContent = s.std === null ? "–" : s.std.toFixed(3);
    at("ups").textContent = ups.length;
    at("ups-by").textContent = ups.length ? `by ${signed(ups[0], 3)} each` : "no answer";
    at("downs").textContent = downs.length;
    at("downs-by").textContent = downs.length ? `by ${signed(downs[0], 3)} each` : "no answer";
    at("alone-says").textContent = s.right
      ? "Pushes every right answer up by 1 and nothing down, however easy the problem is: the push is the same whether par is 0.05 or 0.95."
      : "Every reward is 0: no push at all.";
    at("centred-says").textContent = s.degenerate
      ? `${s.n < 2 ? "There is nothing to compare" : "Every answer is exactly on par"}: no push at all, which is why such a group is left out of the update.`
      : `Compares with the group itself: right answers by ${signed(1 - s.mean, 3)}, wrong ones by ${signed(-s.mean, 3)}. ${2 * s.right === s.n ? "Both kinds are as many, so both are pushed as hard" : "The rarer kind is pushed harder"}; the sum is zero.`;
    bars("reward", s.rewards, (value) => pushOf(value));
    bars("centred", s.centred, (value) => pushOf(value));
  }

  function bars(name, values, push) {
    const view = tossup.views[name];
    if (view) view.data("answers", values.map((value, i) => ({ answer: i + 1, value, push: push(value) }))).runAsync();
  }

  // ---- the picture of p and G

  const chance = (p, g) => p ** g + (1 - p) ** g;
  const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;

  function place(p, g) {
    state.p = Math.min(1, Math.max(0, Math.round(p * 100) / 100));
    state.g = g;
    at("p").value = state.p;
    at("p-now").textContent = state.p.toFixed(2);
    at("g").value = g;
    at("g-now").textContent = g;
    at("deal").textContent = `Deal at p = ${state.p.toFixed(2)}`;
    const right = state.p ** g;
    const wrong = (1 - state.p) ** g;
    const parts = [make("b", {}, percent(right + wrong)), ` of groups of ${g} teach nothing at p = ${state.p.toFixed(2)}: ${percent(right)} are all right, ${percent(wrong)} all wrong.`];
    const own = pool?.waste[g];
    if (own) parts.push(make("br"), "In ", make("b", {}, pool.name), ` at G = ${g}: `, make("b", {}, percent(own.value)), ` (${percent(own.low)} to ${percent(own.high)}), by the audit of its counts.`);
    at("readout").replaceChildren(...parts);
    const view = tossup.views.chance;
    if (view) view.signal("p", state.p).signal("G", g).runAsync();
  }

  function drag(event) {
    const view = tossup.views.chance;
    if (!view || !(event.buttons & 1)) return;
    const box = event.currentTarget.querySelector("svg").getBoundingClientRect();
    const [left, top] = view.origin();
    const p = view.scale("x").invert(event.clientX - box.left - left);
    const height = view.scale("y").invert(event.clientY - box.top - top);
    const inside = Math.min(1, Math.max(0, p));
    let best = state.g;
    for (let g = Number(at("g").min); g <= Number(at("g").max); g++) {
      if (Math.abs(chance(inside, g) - height) < Math.abs(chance(inside, best) - height) - 1e-9) best = g;
    }
    place(inside, best);
  }

  // ---- what people do

  function changed() {
    update();
    const s = score();
    if (s.n > 1) place(s.mean, s.n);
  }

  function stampAll(right) {
    for (let i = 0; i < state.size; i++) Object.assign(state.answers[i], { hand: right(i) ? "right" : "wrong", was: null });
    update();
  }

  function example() {
    at("problem").value = start.problem;
    at("key").value = start.key;
    at("divide").checked = true;
    state.answers = start.answers.map((text) => ({ text, hand: null }));
    resize(start.answers.length);
    changed();
  }

  at("form").addEventListener("submit", (event) => event.preventDefault());
  at("example").addEventListener("click", example);
  at("all-right").addEventListener("click", () => stampAll(() => true));
  at("all-wrong").addEventListener("click", () => stampAll(() => false));
  at("deal").addEventListener("click", () => stampAll(() => Math.random() < state.p));
  at("key").addEventListener("input", changed);
  at("divide").addEventListener("change", update);
  at("size").addEventListener("input", () => {
    resize(Number(at("size").value));
    changed();
  });
  at("p").addEventListener("input", () => place(Number(at("p").value), state.g));
  at("g").addEventListener("input", () => place(state.p, Number(at("g").value)));
  const picture = document.querySelector("[data-chart='chance']");
  picture.addEventListener("pointerdown", (event) => {
    picture.setPointerCapture(event.pointerId);
    event.preventDefault(); // no text is selected on the way
    drag(event);
  });
  picture.addEventListener("pointermove", drag);
  tossup.whenDrawn.push(() => {
    update();
    place(state.p, state.g);
  });
  example();
  document.documentElement.dataset.filled = "yes";
}
