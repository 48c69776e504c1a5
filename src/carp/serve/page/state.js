// Every state of the page is a link: what is chosen stands behind the # and never leaves the browser by itself.

const NAMES = ["user", "item", "other", "cell", "category", "since", "until", "part"];
const LONGEST_TEXT = 4000; // more does not fit into a link that people can send

/** What a link says. A view that does not exist is kept, so that the page can say so. */
export function readLink(hash) {
  const [, view = "", query = ""] = /^#\/?([^?]*)\??(.*)$/s.exec(hash) ?? [];
  const given = new URLSearchParams(query);
  const state = { view: view.replace(/\/+$/, "") };
  for (const name of NAMES) if (given.get(name)) state[name] = given.get(name);
  const reviews = given.getAll("review").filter((text) => text.trim());
  if (reviews.length) state.reviews = reviews;
  return state;
}

export function linkTo(view, state = {}) {
  const given = new URLSearchParams();
  for (const name of NAMES) if (state[name]) given.append(name, state[name]);
  if (fits(state.reviews)) for (const text of state.reviews ?? []) given.append("review", text);
  const query = given.toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

/** Whether a link can carry these reviews. */
export function fits(reviews = []) {
  return reviews.reduce((sum, text) => sum + encodeURIComponent(wellFormed(text)).length, 0) <= LONGEST_TEXT;
}

// Half of a surrogate pair is no text, and encoding it would throw.
const wellFormed = (text) => text.replace(/[\ud800-\udfff]/gu, "\ufffd");
