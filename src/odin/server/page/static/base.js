// What every module uses: the template function, the hooks, and how times, counts and foreign text are shown.

import { useEffect, useReducer, useState } from './vendor/hooks.js';
import { html } from './template.js';

export * from './vendor/hooks.js';
export { Component, Fragment, render } from './vendor/preact.js';
export { html };

export class Emitter {
  #listeners = new Map();

  on(name, listener) {
    let found = this.#listeners.get(name);
    if (!found) this.#listeners.set(name, (found = new Set()));
    found.add(listener);
    return () => {
      found.delete(listener);
      if (!found.size && this.#listeners.get(name) === found) this.#listeners.delete(name);
    };
  }

  emit(name, value) {
    for (const listener of [...(this.#listeners.get(name) ?? [])]) listener(value);
  }
}

// Renders the component again whenever `source` emits one of the names.
export function useEvents(source, ...names) {
  const [, again] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    again();
    const offs = names.map((name) => source.on(name, again));
    return () => offs.forEach((off) => off());
  }, [source, ...names]);
}

// Returns what `load` resolves to as [value, error, reload]; value is undefined until then.
export function useLoaded(load, deps) {
  const [found, setFound] = useState([undefined, null]);
  const [round, again] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    let isCurrent = true;
    load().then(
      (value) => isCurrent && setFound([value, null]),
      (error) => isCurrent && setFound(([value]) => [value, error]),
    );
    return () => { isCurrent = false; };
  }, [...deps, round]);
  return [...found, again];
}

function useNow(isOn = true) {
  const [, tick] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    if (!isOn) return undefined;
    const timer = setInterval(tick, 1000);
    return () => clearInterval(timer);
  }, [isOn]);
  return Date.now() / 1000;
}

export const useMedia = (query) => {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const update = () => setMatches(list.matches);
    update();
    list.addEventListener('change', update);
    return () => list.removeEventListener('change', update);
  }, [query]);
  return matches;
};

// --- storage ---

export function load(key, fallback = '') {
  try {
    return localStorage.getItem(`odin:${key}`) ?? fallback;
  } catch {
    return fallback;
  }
}

export function save(key, value) {
  try {
    if (value) localStorage.setItem(`odin:${key}`, value);
    else localStorage.removeItem(`odin:${key}`);
  } catch {
    // Storage is full or forbidden: it is lost with the tab.
  }
}

// --- words ---

export const count = (number) => Math.round(number).toLocaleString('en');
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
export const join = (...words) => words.filter(Boolean).join(' · ');
export const clip = (text, limit) => (text.length <= limit ? text : `${text.slice(0, limit - 1)}…`);
export const oneLine = (text, limit = 300) => clip(text.slice(0, limit * 4).split(/\s+/).filter(Boolean).join(' '), limit);
export const modelName = (ref) => (ref.startsWith('offline/') ? 'offline' : ref.split('/').pop() || ref);
export const randomId = () => Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, '0')).join('');

export function seconds(whole) {
  const s = Math.max(Math.floor(whole), 0);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

export const duration = (s) => (s < 10 ? `${s.toFixed(1)} s` : seconds(s));
const elapsed = (since, now) => (since && now - since >= 1 ? seconds(now - since) : '');

export function age(since) {
  const s = Date.now() / 1000 - since;
  for (const [size, name] of [[86400 * 365, 'y'], [86400, 'd'], [3600, 'h'], [60, 'min']]) {
    if (s >= size) return `${Math.floor(s / size)} ${name}`;
  }
  return 'now';
}

export function short(number) {
  for (const [limit, unit] of [[1e6, 'M'], [1e3, 'k']]) {
    if (number >= limit * 0.9995) {
      const value = number / limit;
      return `${value < 9.95 ? value.toFixed(1) : value.toFixed(0)}${unit}`;
    }
  }
  return String(number);
}

export const usd = (amount) => `$${amount.toFixed(amount === 0 || amount >= 0.1 ? 2 : 4)}`;

export function when(ts) {
  const date = new Date(ts * 1000);
  const two = (number) => String(number).padStart(2, '0');
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

export const MODES = { ask_mode: 'ask', plan_mode: 'plan', edit_mode: 'edit' };

// Characters that are invisible, change the direction or imitate others must not hide in what somebody approves.
const HIDDEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

export const escapeHidden = (text) => text.replace(HIDDEN, (char) => {
  const code = char.codePointAt(0).toString(16);
  return code.length <= 2 ? `\\x${code.padStart(2, '0')}` : code.length <= 4 ? `\\u${code.padStart(4, '0')}` : `\\u{${code}}`;
});

export const revealSpaces = (text) => escapeHidden(text).replace(/(?<=\S) {16,}/g, (found) => `⟨${found.length} spaces⟩`);
export const isAllVisible = (text) => escapeHidden(text) === text;

export function Elapsed({ since, isOn = true }) {
  return elapsed(since, useNow(isOn));
}
