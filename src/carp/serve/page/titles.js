// What things are called, as far as answers have said.

import { h, name } from "./dom.js";

const titles = new Map();

/** Remember every title in an answer: beside `item`, or beside the `id` of something found. */
export function learn(answer) {
  if (!answer || typeof answer !== "object") return answer;
  const id = answer.item ?? answer.id;
  if (typeof id === "string" && typeof answer.title === "string") titles.set(id, answer.title);
  for (const part of Object.values(answer)) learn(part);
  return answer;
}

/** The title of a thing, or its id where it has none. */
export const called = (item) => titles.get(item) ?? item;

/** The same as an element, with the id small beside a title: two things may have the same one. */
export function thingName(item) {
  const title = called(item);
  return title === item ? name(item) : [name(title), " ", h("small", { class: "soft thing-id" }, name(item))];
}
