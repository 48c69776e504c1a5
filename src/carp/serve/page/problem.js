// What went wrong and how to fix it, in words.

import { h, name } from "./dom.js";
import { linkTo } from "./state.js";

/** `asked` is what the page was asked for, so that somebody nobody knows can be helped on. */
export function problemCard(problem, again, asked) {
  if (problem.kind === "unknown-id" && asked) return unknownCard(problem, asked);
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

function unknownCard({ detail = "", nearest, id }, { state, about }) {
  const field = /the user /.test(detail) ? "user" : state.other && detail.includes(state.other) ? "other" : "item";
  const isPerson = field === "user";
  const meant = nearest && h("a", { href: linkTo(state.view, { ...state, [field]: nearest }) }, name(nearest));
  const ways = [
    meant && ["Did you mean ", meant, "?"],
    isPerson
      ? "Click into the field above and type a few letters: people are found by name and by what they wrote."
      : "Click into the field above and type a few letters: things are found by name and by what is written about them.",
    isPerson &&
      about.newcomers && [
        "Not a customer yet? ",
        h("a", { href: linkTo("whatif", { item: state.item }) }, "Say in your own words what you like"),
        ", and get a rating with its reasons.",
      ],
    isPerson && [h("a", { href: linkTo("offers", { user: state[field] }) }, "See what is popular with everybody"), "."],
  ].filter(Boolean);
  return h(
    "div",
    { class: "card problem", role: "alert" },
    h("h2", null, isPerson ? "Nobody here is called " : "There is nothing here called ", "“", name(state[field]), "”"),
    h(
      "ul",
      { class: "ways" },
      ways.map((way) => h("li", null, way)),
    ),
    id && h("p", { class: "soft small" }, `Request ${id}`),
  );
}
