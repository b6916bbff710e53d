// Dialogs, lists to choose from, and toasts.

import { Emitter, html, randomId, take, typed, useEffect, useEvents, useLayoutEffect, useLoaded, useRef, useState } from './base.js';
import { describe } from './connection.js';

const ui = new Emitter();
let dialogs = [];
let toasts = [];

export function toast(text, level = 'info') {
  if (!text) return;
  const id = randomId();
  toasts = [...toasts.filter((one) => one.text !== text).slice(-2), { id, text, level }];
  ui.emit('toasts');
  setTimeout(() => dropToast(id), level === 'error' ? 12_000 : 6000);
}

export const toastError = (error) => toast(describe(error), 'error');

function dropToast(id) {
  toasts = toasts.filter((one) => one.id !== id);
  ui.emit('toasts');
}

export function Toasts() {
  useEvents(ui, 'toasts');
  const node = useRef(null);
  // In the top layer, so that a dialog does not cover them.
  useLayoutEffect(() => {
    node.current.hidePopover?.();
    if (toasts.length) node.current.showPopover?.();
  }, [toasts]);
  return html`<div class="toasts" ref=${node} popover="manual" role="status" aria-live="polite" aria-label="Messages">${toasts.map(({ id, text, level }) => html`
    <div key=${id} class="toast" data-level=${level}><span>${text}</span>
      <button aria-label="Dismiss" onClick=${() => dropToast(id)}>✕</button></div>`)}</div>`;
}

export function openDialog(Kind, props = {}) {
  return new Promise((resolve) => {
    const id = randomId();
    const close = (result) => {
      dialogs = dialogs.filter((one) => one.id !== id);
      ui.emit('dialogs');
      resolve(result);
    };
    dialogs = [...dialogs, { id, Kind, props: { ...props, close } }];
    ui.emit('dialogs');
  });
}

export const hasDialog = () => dialogs.length > 0;

export function closeDialogs() {
  for (const { props } of dialogs) props.close();
}

export function Dialogs() {
  useEvents(ui, 'dialogs');
  return dialogs.map(({ id, Kind, props }) => html`<${Kind} key=${id} ...${props} />`);
}

export function Dialog({ title, close, children, actions, size = '', role, onKeyDown }) {
  const node = useRef(null);
  const [id] = useState(randomId);
  useLayoutEffect(() => {
    const dialog = node.current;
    if (!dialog.open) dialog.showModal();
    const wanted = dialog.querySelector('[data-focus]');
    if (wanted) wanted.focus();
    return () => dialog.close();
  }, []);
  return html`<dialog ref=${node} class=${`dialog ${size}`} role=${role} aria-labelledby=${id} onKeyDown=${onKeyDown}
      onCancel=${(event) => take(event, close)} onClick=${(event) => { if (event.target === node.current) close(); }}>
    <div class="dialog-box">
      <header><h2 id=${id}>${title}</h2><button class="icon" aria-label="Close" onClick=${() => close()}>✕</button></header>
      <div class="dialog-body">${children}</div>
      ${actions && html`<footer>${actions}</footer>`}
    </div>
  </dialog>`;
}

function Question({ title, text, label, value: given = '', verb, close }) {
  const [value, setValue] = useState(given);
  const submit = () => {
    if (!label) close(true);
    else if (value.trim()) close(value.trim());
  };
  return html`<${Dialog} title=${title} close=${close} size="narrow" role=${label ? undefined : 'alertdialog'}><form onSubmit=${submit} class="stack">
    ${label ? html`<label>${label}<input data-focus value=${value} onInput=${typed(setValue)} /></label>` : html`<p>${text}</p>`}
    <div class="buttons"><button data-focus onClick=${() => close()}>Cancel</button><button class=${label ? 'primary' : 'danger'}>${verb}</button></div>
  </form><//>`;
}

export const confirm = (title, text, verb) => openDialog(Question, { title, text, verb });
export const askText = (title, label, value = '', verb = 'Save') => openDialog(Question, { title, label, value, verb });

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;
// What stands in the place of a value until it is there, and above one that could not be read again.
export const Waiting = ({ error, value }) => (error ? html`<p class="empty bad" role="alert">${describe(error)}</p>` : value === undefined && html`<p class="empty" role="status">Loading…</p>`);

// A list with a filter. Items are {label, detail, hint, value, isCurrent}, or a function that loads them.
function Picker({ title, items: given, close, placeholder = 'Type to filter', own, empty = 'Nothing here.', isFiltered = true }) {
  const [loaded, error] = useLoaded(async () => (Array.isArray(given) ? [] : given()), []);
  const items = Array.isArray(given) ? given : loaded;
  const [words, setWords] = useState('');
  const [chosen, setAt] = useState(-1);
  const at = chosen >= 0 ? chosen : Math.max((items ?? []).findIndex((item) => item.isCurrent), 0);
  const [id] = useState(randomId);
  const list = useRef(null);
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const found = (items ?? []).filter((item) => wanted.every((word) => `${item.label} ${item.detail ?? ''} ${item.hint ?? ''}`.toLowerCase().includes(word)));
  if (own && words.trim() && !found.some(({ label }) => label === words.trim())) found.push({ label: own(words.trim()), value: words.trim() });
  const here = Math.min(at, found.length - 1);
  useEffect(() => list.current?.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' }), [here, words]);
  const onKeyDown = (event) => {
    const move = { ArrowDown: here + 1, ArrowUp: here - 1 + found.length }[event.key];
    if (event.target.closest('button') || !found.length) return;
    if (move !== undefined) setAt(move % found.length);
    else if (event.key === 'Enter') close(found[here].value);
    else return;
    event.preventDefault();
  };
  const active = found.length ? `${id}-${here}` : undefined;
  return html`<${Dialog} title=${title} close=${close} onKeyDown=${onKeyDown}>
    ${isFiltered && html`<input type="search" class="filter" data-focus role="combobox" aria-expanded="true" aria-autocomplete="list" aria-controls=${id} aria-label=${placeholder}
      aria-activedescendant=${active} placeholder=${placeholder} value=${words} onInput=${(event) => { setWords(event.target.value); setAt(0); }} />`}
    <ul class="list" role="listbox" aria-label=${title} id=${id} ref=${list} ...${isFiltered ? {} : { tabindex: 0, 'data-focus': true, 'aria-activedescendant': active }}>${found.slice(0, 300).map((item, number) => html`
      <li key=${item.label + number} id=${`${id}-${number}`} role="option" aria-selected=${number === here} class=${number === here ? 'here' : ''} onClick=${() => close(item.value)} onPointerMove=${() => number !== here && setAt(number)}>
        <span class="what"><b>${item.label}</b>${item.isCurrent && html` <small class="accent">current</small>`}${item.detail && html`<span class="detail">${item.detail}</span>`}</span>
        ${item.hint && html`<span class="status">${item.hint}</span>`}</li>`)}</ul>
    ${!items ? html`<${Waiting} error=${error} />` : !found.length ? html`<${Empty}>${empty}<//>` : null}
  <//>`;
}

export const pick = (title, items, more = {}) => openDialog(Picker, { title, items, ...more });

// Actions are [label, run, hint].
export async function pickAction(title, actions) {
  const chosen = await pick(title, actions.map(([label, run, hint]) => ({ label, hint, value: run })), { isFiltered: false });
  if (chosen) await chosen();
}
