// What every module uses: the template function, the hooks, storage, and how times and counts are shown.

import { useEffect, useReducer, useState } from './vendor/hooks.js';
import { html } from './template.js';

export * from './vendor/hooks.js';
export { render } from './vendor/preact.js';
export { html };

export class Emitter extends EventTarget {
  on(name, run) {
    const listener = ({ detail }) => run(detail);
    this.addEventListener(name, listener);
    return () => this.removeEventListener(name, listener);
  }

  emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
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

// Returns what `load` resolves to as [value, error, reload]; value is undefined until then. While the page is seen,
// it is loaded again `every` milliseconds after the last answer.
export function useLoaded(load, deps, every) {
  const [found, setFound] = useState([undefined, null]);
  const [round, again] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    const aborter = new AbortController();
    const { signal } = aborter;
    load(signal).then(
      (value) => signal.aborted || setFound([value, null]),
      (error) => signal.aborted || setFound(([value]) => [value, error]),
    );
    return () => aborter.abort();
  }, [...deps, round]);
  useEffect(() => {
    const timer = every && setTimeout(() => (document.hidden ? setFound([...found]) : again()), every);
    return () => clearTimeout(timer);
  }, [found]);
  return [...found, again];
}

// The listener of a field that sets what is typed.
export const typed = (set) => ({ target }) => set(target.value);

// Does what a key or a button is for, and nothing else.
export function take(event, action) {
  event.preventDefault();
  event.stopPropagation();
  action();
}

// As a ref, focuses a field when it appears.
export function focusOnce(node) {
  if (node && !node.dataset.seen) {
    node.dataset.seen = '1';
    node.focus();
  }
}

export function useMedia(query) {
  const [, again] = useReducer((count) => count + 1, 0);
  const list = matchMedia(query);
  useEffect(() => {
    list.addEventListener('change', again);
    return () => list.removeEventListener('change', again);
  }, [query]);
  return list.matches;
}

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
    // Full or forbidden.
  }
}

export const count = (number) => Math.round(number).toLocaleString('en');
export const plural = (number, one) => `${count(number)} ${one}${number === 1 ? '' : 's'}`;
export const join = (...words) => words.filter(Boolean).join(' · ');
export const clip = (text, limit) => (text.length <= limit ? text : `${text.slice(0, limit - 1)}…`);
export const oneLine = (text, limit = 300) => clip(text.slice(0, limit * 4).split(/\s+/).filter(Boolean).join(' '), limit);
export const modelName = (ref) => (ref.startsWith('offline/') ? 'offline' : ref.split('/').pop() || ref);
export const randomId = () => Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, '0')).join('');

function seconds(whole) {
  const s = Math.max(Math.floor(whole), 0);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

export function age(since) {
  const s = Date.now() / 1000 - since;
  for (const [size, name] of [[86400 * 365, 'y'], [86400, 'd'], [3600, 'h'], [60, 'min']]) {
    if (s >= size) return `${Math.floor(s / size)} ${name}`;
  }
  return 'now';
}

export const usd = (amount) => `$${amount.toFixed(amount === 0 || amount >= 0.1 ? 2 : 4)}`;

export const when = (ts) => new Date(ts * 1000).toLocaleString('sv').slice(0, 16); // 2026-11-19 09:30
export const linkTo = (session, agent = '') => `#/s/${session}${agent ? `/${encodeURIComponent(agent)}` : ''}`;

export const boardLink = (name) => `#/b/${name}`;

export const MODES = { ask_mode: 'ask', plan_mode: 'plan', edit_mode: 'edit' };
const NEXT_MODES = { ask_mode: 'plan_mode', plan_mode: 'edit_mode' };
export const nextMode = (mode) => NEXT_MODES[mode] ?? 'ask_mode';

// How long something runs.
export function Elapsed({ since }) {
  const [, tick] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    const timer = setInterval(tick, 1000);
    return () => clearInterval(timer);
  }, []);
  const took = Date.now() / 1000 - since;
  return since && took >= 1 ? seconds(took) : '';
}

// A line that folds what follows it.
export const Fold = ({ isFolded, toggle, tone = '', children }) => html`<button class=${`fold ${tone}`} aria-expanded=${!isFolded} onClick=${toggle}>
  <span class="mark" aria-hidden="true">${isFolded ? '▸' : '▾'}</span>${children}</button>`;

export const Facts = ({ rows }) => html`<dl class="args">${rows.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
