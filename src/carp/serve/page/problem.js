// What went wrong and how to fix it, in words.

import { h } from "./dom.js";

export function problemCard(problem, again) {
  const { title, detail, fix, id } = problem;
  const unexpected = title === undefined;
  return h(
    "div",
    { class: "card problem", role: "alert" },
    h("h2", null, unexpected ? "This page stumbled" : title),
    (unexpected ? problem.message : detail) && h("p", { dir: "auto" }, unexpected ? problem.message : detail),
    fix && h("p", { class: "fix", dir: "auto" }, h("strong", null, "What helps: "), fix),
    again && h("button", { type: "button", on: { click: again } }, "Try again"),
    id && h("p", { class: "soft small" }, `Request ${id}`),
  );
}
