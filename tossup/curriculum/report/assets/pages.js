"use strict";
// What both pages share: the data, the charts in the colours of the page, tables that sort.
// Text from outside is only ever put in as text nodes; nothing here writes HTML.

const tossup = {
  data: JSON.parse(document.getElementById("data").textContent),
  charts: JSON.parse(document.getElementById("charts").textContent),
  views: {},
  whenDrawn: [],

  // An element with attributes; children are elements or text.
  make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "class") element.className = value;
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children);
    return element;
  },

  signed(value, digits = 2) {
    const text = Math.abs(value).toFixed(digits);
    return Number(text) === 0 ? text : (value > 0 ? "+" : "−") + text;
  },
};

{
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  const colours = () => {
    const css = getComputedStyle(document.documentElement);
    const of = (name) => css.getPropertyValue(name).trim();
    const words = { labelColor: of("--text"), titleColor: of("--quiet"), labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" };
    return {
      background: "transparent",
      font: getComputedStyle(document.body).fontFamily,
      view: { stroke: null },
      axis: { ...words, gridColor: of("--grid"), domainColor: of("--line"), tickColor: of("--line"), labelLimit: 140 },
      legend: { ...words, labelLimit: 160 },
    };
  };

  const draw = async (holder) => {
    const name = holder.dataset.chart;
    const result = await vegaEmbed(holder, tossup.charts[name], {
      actions: false,
      ast: true, // expressions are interpreted, so that the page needs no eval
      renderer: "svg",
      config: colours(),
      tooltip: { theme: dark.matches ? "dark" : "light" },
    });
    tossup.views[name] = result.view;
    for (const callback of tossup.whenDrawn) callback(name, result.view);
  };

  const drawAll = () => Promise.all([...document.querySelectorAll("[data-chart]")].map(draw));
  document.addEventListener("DOMContentLoaded", async () => {
    await drawAll();
    document.documentElement.dataset.drawn = "yes";
  });
  dark.addEventListener("change", drawAll);

  const valueOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
  };

  const sortBy = (table, column, heading) => {
    const falling = heading.getAttribute("aria-sort") !== "descending";
    const sign = falling ? -1 : 1;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const compare = (a, b) => {
      const [x, y] = [valueOf(a, column), valueOf(b, column)];
      return sign * (typeof x === "number" ? x - y : x.localeCompare(y));
    };
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const button = tossup.make("button", { type: "button", onclick: () => sortBy(table, column, heading) });
      button.append(...heading.childNodes);
      heading.append(button);
    });
  }
}
