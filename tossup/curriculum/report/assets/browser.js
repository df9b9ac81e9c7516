"use strict";
// The browser of groups: filters, a list of groups, and the group that is open.
{
  const { make, signed } = tossup;
  const groups = tossup.data.groups;
  const root = document.getElementById("browser");
  const KINDS = { mixed: "right and wrong", all_correct: "all right", all_wrong: "all wrong", too_few: "too few judged" };
  const MARKS = { correct: "✓", wrong: "✗", undecided: "?" };
  const MOST_MARKS = 32;
  let shown = groups;
  let open = null;

  const option = (value, text) => make("option", { value }, text);
  const count = (values, value) => values.filter((v) => v === value).length;
  const kinds = groups.map((g) => g.kind);
  const kind = make("select", { onchange: filter }, option("", `every kind (${groups.length})`));
  for (const [value, text] of Object.entries(KINDS)) {
    if (kinds.includes(value)) kind.append(option(value, `${text} (${count(kinds, value)})`));
  }
  const names = groups.map((g) => g.dataset);
  const dataset = make("select", { onchange: filter }, option("", "every data set"));
  for (const name of [...new Set(names)].sort()) dataset.append(make("option", { value: `=${name}` }, `${name} (${count(names, name)})`));
  const search = make("input", { type: "search", oninput: filter, placeholder: "text of problem or answer" });
  const back = make("button", { type: "button", class: "plain", onclick: () => move(-1) }, "← Previous");
  const on = make("button", { type: "button", class: "plain", onclick: () => move(1) }, "Next →");
  const place = make("span", { role: "status", class: "quiet" });
  const list = make("ol", { class: "list", "aria-label": "Groups" });
  const detail = make("article", { class: "group", tabindex: "-1", "aria-label": "The open group" });
  root.append(
    make("div", { class: "bar" }, make("label", {}, "kind", kind), make("label", {}, "data set", dataset), make("label", {}, "find", search), back, on, place),
    make("div", { class: "browse" }, list, detail),
  );

  const marksOf = (group) => {
    const marks = make("span", { class: "marks" });
    if (group.answers.length > MOST_MARKS) {
      marks.append(`${count(group.answers.map((a) => a.ruling), "correct")} of ${group.answers.length} right`);
    } else {
      for (const a of group.answers) marks.append(make("span", { class: a.ruling === "correct" ? "right" : a.ruling }, MARKS[a.ruling]));
    }
    return marks;
  };

  const items = new Map();
  for (const group of groups) {
    const button = make("button", { type: "button", onclick: () => show(group) }, marksOf(group), make("small", {}, `${tossup.data.time} ${group.step} · ${group.dataset}`));
    items.set(group, make("li", {}, button));
  }

  function filter() {
    const words = search.value.toLowerCase();
    const holds = (text) => text !== null && text.toLowerCase().includes(words);
    shown = groups.filter(
      (g) =>
        (kind.value === "" || g.kind === kind.value) &&
        (dataset.value === "" || `=${g.dataset}` === dataset.value) &&
        (words === "" || holds(g.problem) || holds(g.prompt) || g.answers.some((a) => holds(a.text))),
    );
    list.replaceChildren(...shown.map((g) => items.get(g)));
    show(shown.includes(open) ? open : (shown.find((g) => g.kind === "mixed") ?? shown[0] ?? null));
  }

  function move(by) {
    const next = shown[shown.indexOf(open) + by];
    if (next) show(next);
  }

  function show(group) {
    if (open) items.get(open).firstChild.removeAttribute("aria-current");
    open = group;
    const at = shown.indexOf(group);
    back.disabled = at <= 0;
    on.disabled = at < 0 || at >= shown.length - 1;
    place.textContent = group ? `${at + 1} of ${shown.length}` : "no group fits";
    if (!group) {
      detail.replaceChildren(make("p", {}, "No group fits these filters."));
      return;
    }
    const item = items.get(group).firstChild;
    item.setAttribute("aria-current", "true");
    list.scrollTop = Math.max(0, item.offsetTop - list.offsetTop - list.clientHeight / 2);
    detail.replaceChildren(...parts(group));
  }

  const WHY = {
    all_correct: "All right: nothing to compare, every advantage is 0, the group taught nothing.",
    all_wrong: "All wrong: nothing to compare, every advantage is 0, the group taught nothing.",
    too_few: "Fewer than two answers were judged: there is nothing to compare.",
  };

  function parts(group) {
    const figures = make("p", { class: "figures" });
    const figure = (name, value) => figures.append(make("span", {}, `${name} `, make("b", {}, value)));
    figure("mean", group.mean === null ? "–" : group.mean.toFixed(3));
    figure("std", group.std === null ? "–" : group.std.toFixed(3));
    figure("pushed up", String(group.answers.filter((a) => a.advantage > 0).length));
    figure("pushed down", String(group.answers.filter((a) => a.advantage < 0).length));
    const out = [make("h3", {}, group.problem), make("p", { class: "quiet" }, `${group.dataset} · ${tossup.data.time} ${group.step} · drawn by ${group.drawn_by}`)];
    if (group.prompt !== null) {
      out.push(make("div", { class: "prompt" }, make("pre", { dir: "auto", tabindex: "0", "aria-label": "Prompt" }, group.prompt)));
      out.push(make("p", {}, "key: ", make("code", {}, group.reference)));
    }
    out.push(figures);
    if (WHY[group.kind]) out.push(make("p", { class: "note" }, WHY[group.kind]));
    out.push(make("ol", { class: "answers" }, ...group.answers.map(answer)));
    return out;
  }

  function answer(a, i) {
    const push = a.advantage === null || a.advantage === 0 ? "none" : a.advantage > 0 ? "up" : "down";
    const words = { up: "▲ ", down: "▼ ", none: "" }[push] + (a.advantage === null ? "left out" : signed(a.advantage));
    const text =
      a.text === null
        ? make("p", { class: "quiet" }, "(the text was not kept)")
        : make("pre", { dir: "auto", tabindex: a.text.length > 300 ? "0" : null, "aria-label": `Answer ${i + 1}` }, a.text === "" ? "(empty)" : a.text);
    const facts = `${a.tokens} tokens${a.cut ? ", cut off" : ""} · ${a.fate.replaceAll("_", " ")}`;
    return make(
      "li",
      { class: `answer ${push}` },
      make("header", {}, make("span", { class: `push ${push}` }, words), make("span", { class: `stamp ${a.ruling}` }, a.ruling)),
      text,
      make("small", {}, a.reason),
      make("small", {}, facts),
    );
  }

  root.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select, pre") || event.altKey || event.ctrlKey || event.metaKey) return;
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!by || (event.key.startsWith("ArrowU") || event.key.startsWith("ArrowD")) && !list.contains(event.target)) return;
    event.preventDefault();
    move(by);
    if (list.contains(event.target) && open) items.get(open).firstChild.focus();
  });

  // A table links to a group as #g=STEP-GROUP.
  const follow = () => {
    const key = location.hash.startsWith("#g=") ? location.hash.slice(3) : null;
    const group = key === null ? undefined : groups.find((g) => g.key === key);
    if (!group) return;
    kind.value = dataset.value = search.value = "";
    filter();
    show(group);
    document.getElementById("groups").scrollIntoView();
    detail.focus({ preventScroll: true });
  };
  filter();
  window.addEventListener("hashchange", follow);
  follow();
}
