// The question at the head of a view is a sentence with fields in it.

import { picker } from "../combobox.js";
import { h } from "../dom.js";

/** Words and fields in order. A field is {state name: label}; `other` is a second thing. */
export function sentence(state, go, parts) {
  const fields = {};
  const nodes = parts.map((part) => {
    if (typeof part === "string")
      return h("span", { class: part === "?" ? "question-words end" : "question-words" }, part);
    const [[field, label]] = Object.entries(part);
    fields[field] = picker(field === "user" ? "user" : "item", {
      label,
      value: state[field] ?? "",
      hint: field === "user" ? "choose a person" : field === "other" ? "choose another thing" : "choose a thing",
      choose: (id) => go({ [field]: id, cell: undefined }),
    });
    return fields[field].node;
  });
  return {
    node: h("div", { class: "question" }, nodes),
    fields,
    update(next) {
      for (const [field, shown] of Object.entries(fields)) shown.show(next[field] ?? "");
    },
    rename() {
      for (const shown of Object.values(fields)) shown.rename();
    },
  };
}

/** Where to go from here. */
export function jumps(links) {
  const rows = links.map(([href, words]) => h("li", null, h("a", { href }, words)));
  return h("nav", { class: "jumps", "aria-label": "Go on from here" }, h("ul", null, rows));
}
