// Dialogs, lists to choose from, and toasts.

import { Emitter, html, randomId, useEffect, useEvents, useLayoutEffect, useRef, useState } from './base.js';
import { describe } from './connection.js';

const ui = new Emitter();
let dialogs = [];
let toasts = [];

// --- toasts ---

export function toast(text, level = 'info', ms = 6000) {
  if (!text) return;
  const id = randomId();
  toasts = [...toasts.filter((one) => one.text !== text).slice(-2), { id, text, level }];
  ui.emit('toasts');
  setTimeout(() => dropToast(id), level === 'error' ? ms * 2 : ms);
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
    <div key=${id} class="toast" data-level=${level}><span dir="auto">${text}</span>
      <button aria-label="Dismiss" onClick=${() => dropToast(id)}>✕</button></div>`)}</div>`;
}

// --- dialogs ---

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
      onCancel=${(event) => { event.preventDefault(); close(); }} onClick=${(event) => { if (event.target === node.current) close(); }}>
    <div class="dialog-box">
      <header><h2 id=${id}>${title}</h2><button class="icon" aria-label="Close" onClick=${() => close()}>✕</button></header>
      <div class="dialog-body">${children}</div>
      ${actions ? html`<footer>${actions}</footer>` : null}
    </div>
  </dialog>`;
}

function Confirmation({ title, text, verb, isDangerous, close }) {
  return html`<${Dialog} title=${title} close=${close} size="narrow" role="alertdialog" actions=${html`
      <button data-focus onClick=${() => close(false)}>Cancel</button>
      <button class=${isDangerous ? 'danger' : 'primary'} onClick=${() => close(true)}>${verb}</button>`}>
    <p>${text}</p><//>`;
}

export const confirm = (title, text, verb, isDangerous = true) => openDialog(Confirmation, { title, text, verb, isDangerous });

function Question({ title, label, value, verb, close, isOptional }) {
  const [text, setText] = useState(value);
  const submit = (event) => {
    event.preventDefault();
    if (text.trim() || isOptional) close(text.trim());
  };
  return html`<${Dialog} title=${title} close=${close} size="narrow"><form onSubmit=${submit} class="stack">
    <label>${label}<input data-focus value=${text} dir="auto" onInput=${(event) => setText(event.target.value)} /></label>
    <div class="buttons"><button onClick=${() => close()}>Cancel</button><button class="primary">${verb}</button></div>
  </form><//>`;
}

export const askText = (title, label, value = '', verb = 'Save', isOptional = false) => openDialog(Question, { title, label, value, verb, isOptional });

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;
export const Waiting = ({ error }) => (error ? html`<p class="empty bad" role="alert">${describe(error)}</p>` : html`<p class="empty" role="status">Loading…</p>`);

// A list with a filter. Items are {label, detail, hint, value, isCurrent}; `keys` are more actions: {F5: [label, run(item)]}.
export function Picker({ title, items, close, placeholder = 'Type to filter', own, keys = {}, empty = 'Nothing here.', children, isFiltered = true }) {
  const [words, setWords] = useState('');
  const [at, setAt] = useState(() => Math.max((items ?? []).findIndex((item) => item.isCurrent), 0));
  const [id] = useState(randomId);
  const list = useRef(null);
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const found = (items ?? []).filter((item) => wanted.every((word) => `${item.label} ${item.detail ?? ''} ${item.hint ?? ''}`.toLowerCase().includes(word)));
  if (own && words.trim() && !found.some(({ label }) => label === words.trim())) found.push({ label: own(words.trim()), value: words.trim() });
  const here = Math.min(at, found.length - 1);
  useEffect(() => list.current?.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' }), [here, words]);
  const onKeyDown = (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (move) setAt(Math.max(0, Math.min(here + move, found.length - 1)));
    else if (event.key === 'Enter' && found[here]) close(found[here].value);
    else if (keys[event.key] && found[here]) keys[event.key][1](found[here].value, close);
    else return;
    event.preventDefault();
  };
  const hints = Object.entries(keys);
  return html`<${Dialog} title=${title} close=${close} onKeyDown=${onKeyDown} actions=${hints.length ? html`<div class="buttons">${
      hints.map(([key, [label, run]]) => html`<button onClick=${() => found[here] && run(found[here].value, close)}>${label} <kbd>${key}</kbd></button>`)}</div>` : null}>
    ${children}
    <input type=${isFiltered ? 'search' : 'text'} class=${isFiltered ? 'filter' : 'unseen'} data-focus role="combobox" aria-expanded="true" aria-autocomplete="list" aria-controls=${id} aria-label=${isFiltered ? placeholder : title}
      aria-activedescendant=${found.length ? `${id}-${here}` : undefined} placeholder=${placeholder} value=${words} readonly=${!isFiltered} dir="auto"
      onInput=${(event) => { setWords(event.target.value); setAt(0); }} />
    <ul class="list" role="listbox" aria-label=${title} id=${id} ref=${list}>${found.slice(0, 300).map((item, number) => html`
      <li key=${item.label + number} id=${`${id}-${number}`} role="option" aria-selected=${number === here} class=${number === here ? 'here' : ''} onClick=${() => close(item.value)} onPointerMove=${() => number !== here && setAt(number)}>
        <span class="what"><b>${item.label}</b>${item.isCurrent ? html` <span class="tag">current</span>` : null}${item.detail ? html`<span class="detail" dir="auto">${item.detail}</span>` : null}</span>
        ${item.hint ? html`<span class="status">${item.hint}</span>` : null}</li>`)}</ul>
    ${items === undefined ? html`<${Waiting} />` : !found.length ? html`<${Empty}>${empty}<//>` : null}
  <//>`;
}

export const pick = (title, items, more = {}) => openDialog(Picker, { title, items, ...more });

// Buttons that open a list of actions, such as those of a session: [label, run, isDangerous].
export async function pickAction(title, actions) {
  const chosen = await pick(title, actions.map(([label, run, hint]) => ({ label, hint, value: run })), { isFiltered: false });
  if (chosen) await chosen();
}
