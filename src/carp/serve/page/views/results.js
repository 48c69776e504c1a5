// The benchmark's tables and plots. Its report is markup: it is read by an inert parser and built again from the few
// elements and attributes a report needs, so that nothing else of it reaches the page.

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { problemCard } from "../problem.js";
import { sortable } from "../sorting.js";

const words = (text) => new Set(text.split(" "));
const TABLES = "table caption thead tbody tfoot tr th td";
const ELEMENTS = words(
  `${TABLES} section div span h3 h4 p ul ol li dl dt dd figure figcaption img strong em b i code pre br sup sub abbr`,
);
const DROPPED = words("script style template iframe object embed link form input button textarea select svg math");
const CLASSES = words("best second failed marked word note");
const SPANS = new Set(["colspan", "rowspan"]);
const PICTURE = /^data:image\/(svg\+xml|png);base64,[A-Za-z0-9+/=]+$/;

export const results = {
  label: "Results",
  needs: {},
  title: () => "How well does it work?",
  question: () => ({ node: h("p", { class: "question" }, "How well does it work?"), fields: {}, update() {} }),
  load: (state, about, signal) => get("results", {}, { signal }),

  show({ sections }) {
    return {
      said: `${sections.length} sections of results.`,
      nodes: sections.map(({ title, html }, number) =>
        h("section", { class: "report" }, h("h2", null, title), html ? copied(html, title) : waiting(title, number)),
      ),
    };
  },
};

/** A section that is fetched when somebody wants to see it. */
function waiting(title, number) {
  const place = h("div", { class: "waiting" });
  const open = async () => {
    fill(place, h("p", { class: "soft", role: "status" }, "Loading…"));
    try {
      const { sections } = await get("results", { section: number });
      fill(place, copied(sections[0].html, title));
    } catch (problem) {
      fill(place, problemCard(problem, open));
    }
  };
  const named = { type: "button", class: "quiet", "aria-label": `Show ${title}` };
  fill(place, h("button", { ...named, on: { click: open } }, "Show"));
  return place;
}

function copied(html, title) {
  const read = new DOMParser().parseFromString(html, "text/html");
  const heading = read.body.querySelector("h1, h2");
  // The section's own heading stands above already.
  if (heading?.textContent.trim() === title.trim()) heading.remove();
  return [...read.body.childNodes].map(copy);
}

function copy(node) {
  if (node.nodeType === Node.TEXT_NODE) return node.data;
  if (node.nodeType !== Node.ELEMENT_NODE) return null;
  const tag = node.localName;
  if (DROPPED.has(tag)) return null;
  const children = () => [...node.childNodes].map(copy);
  if (tag === "h1" || tag === "h2") return h("h3", null, children());
  if (!ELEMENTS.has(tag)) return children();
  if (tag === "img") return picture(node);
  if (tag === "table")
    return h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": captionOf(node) },
      sortable(h("table", null, children())),
    );
  return h(tag === "section" ? "div" : tag, attributes(node), children());
}

const captionOf = (table) => table.querySelector("caption")?.textContent.trim() || "Table";

function attributes(node) {
  const kept = {};
  const classes = [...node.classList].filter((name) => CLASSES.has(name));
  if (classes.length) kept.class = classes.join(" ");
  if (/^(col|row)$/.test(node.getAttribute("scope") ?? "")) kept.scope = node.getAttribute("scope");
  for (const span of SPANS) if (/^\d{1,3}$/.test(node.getAttribute(span) ?? "")) kept[span] = node.getAttribute(span);
  return kept;
}

function picture(node) {
  const source = node.getAttribute("src") ?? "";
  const alt = node.getAttribute("alt") ?? "";
  return PICTURE.test(source) ? h("img", { src: source, alt, loading: "lazy" }) : h("em", null, alt);
}
