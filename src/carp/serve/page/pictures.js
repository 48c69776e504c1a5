// Pictures of things: only from where the owner allows them, and a quiet tile with a letter where there is none.

import { h } from "./dom.js";
import { linkTo } from "./state.js";

const allowed = new Set(
  (document.querySelector("meta[name=carp-pictures]")?.content ?? "").split(" ").filter(Boolean),
);

/** Whether the page may load a picture from this address. */
export function mayLoad(address) {
  try {
    return allowed.has(new URL(address).origin);
  } catch {
    return false; // no address at all
  }
}

/** A thing's picture beside its name, for the eye alone. Without pictures anywhere there is no empty place either. */
export function thumbnail(facts, title, size = "") {
  if (!allowed.size) return null;
  const tile = h("span", { class: `thumb ${size}`, "aria-hidden": "true" }, [...title.trim()][0]?.toUpperCase() ?? "");
  if (!mayLoad(facts?.picture ?? "")) return tile;
  const shown = h("img", { class: `thumb ${size}`, src: facts.picture, alt: "", loading: "lazy", decoding: "async" });
  shown.addEventListener("error", () => shown.replaceWith(tile)); // a picture that is gone looks like none
  return shown;
}

/** What is known of a thing besides its reviews; nothing where nothing is known. */
export function thingStrip(facts, title) {
  if (!facts) return null;
  const { categories = [], description } = facts;
  const shown = thumbnail(facts, title, "large");
  const words = [categories.length > 0 && categoryList(categories), description && descriptionOf(description)];
  if (!words.some(Boolean) && !shown) return null;
  return h("div", { class: "strip" }, shown, h("div", { class: "strip-words" }, words));
}

const descriptionOf = (description) =>
  h(
    "details",
    { class: "description" },
    h("summary", null, "What it is"),
    h("p", { dir: "auto" }, description),
  );

/** Categories in small; `user` makes each a way to what suits this person of it. */
export const categoryList = (categories, user) =>
  h(
    "ul",
    { class: "chips", "aria-label": "Categories" },
    categories.map((category) =>
      h("li", null, user ? h("a", { href: linkTo("offers", { user, category }) }, category) : category),
    ),
  );
