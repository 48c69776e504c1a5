// The service's answers, and its problem documents as errors that can be read.

import { learn } from "./titles.js";

const PATIENCE = 30_000;
const REMEMBERED = 60;
const remembered = new Map();

/** What went wrong, in the service's own words where it has any. */
export class Problem extends Error {
  constructor({ title, detail, fix, status, id, kind, nearest }) {
    super(title);
    Object.assign(this, { title, detail, fix, status, id, kind, nearest });
  }
}

/** A GET is remembered, so that going back is instant. */
export async function get(path, query = {}, { signal } = {}) {
  const address = `api/${path}${asQuery(query)}`;
  if (remembered.has(address)) return remembered.get(address);
  const answer = await fetched(address, { signal });
  remembered.set(address, answer);
  if (remembered.size > REMEMBERED) remembered.delete(remembered.keys().next().value);
  return answer;
}

export function post(path, body, { signal } = {}) {
  const headers = { "Content-Type": "application/json" };
  return fetched(`api/${path}`, { method: "POST", headers, body: JSON.stringify(body), signal });
}

/** One part of a path: ids may hold slashes, markup or anything else. */
export const part = (id) => encodeURIComponent(id);

function asQuery(query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

async function fetched(address, options) {
  const limit = AbortSignal.timeout(PATIENCE);
  const signal = options.signal ? AbortSignal.any([options.signal, limit]) : limit;
  let response;
  let text;
  try {
    response = await fetch(address, { ...options, signal });
    text = await response.text();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw unreachable(limit.aborted);
  }
  const answer = parsed(text);
  if (response.ok && answer !== undefined) return learn(answer);
  throw problemOf(response, answer);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function unreachable(late) {
  return new Problem({
    title: late ? "The service takes too long" : "The service does not answer",
    detail: late ? "No answer came within half a minute." : "The connection failed or was refused.",
    fix: "See that carp serve is still running, then try again.",
  });
}

function problemOf(response, answer) {
  const id = response.headers.get("X-Request-Id");
  if (response.ok) {
    const detail = "The answer was not the JSON that this page reads.";
    return new Problem({ title: "The answer cannot be read", detail, fix: "Reload the page.", status: 200, id });
  }
  const said = answer && typeof answer === "object" ? answer : {};
  return new Problem({
    title: words(said.title) ?? `The service answered ${response.status}`,
    detail: words(said.detail),
    fix: words(said.fix),
    status: response.status,
    id: words(said.id) ?? id,
    kind: words(said.type)?.replace("urn:carp:", ""),
    nearest: words(said.nearest),
  });
}

const words = (value) => (typeof value === "string" && value.trim() ? value : undefined);
