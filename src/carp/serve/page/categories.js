// A field that narrows things down to one category.

import { picker } from "./combobox.js";
import { h } from "./dom.js";

/** "among [everything]"; nothing where things have no categories. */
export function categoryField(state, about, go) {
  if (!about.described) return null;
  const field = picker("category", {
    label: "Category",
    value: state.category ?? "",
    hint: "everything",
    choose: (category) => go({ category: category || undefined }),
  });
  return h("p", { class: "filter" }, h("span", { class: "soft" }, "Choose among "), field.node);
}
