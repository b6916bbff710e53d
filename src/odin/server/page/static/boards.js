// Boards: tables in the server's words, read again while they are seen.

import { html, linkTo, plural, useLoaded, useState } from './base.js';
import { get, post } from './connection.js';
import { confirm, toast, toastError, Waiting } from './dialogs.js';

const EVERY_MS = 2000;
const SHOWN = 25; // rows of a section at first

export function BoardPage({ name }) {
  const [board, error, again] = useLoaded(() => get('board', { name }), [], EVERY_MS);
  document.title = board?.title ?? 'Odin Code';
  const act = async ({ id: action, label, question }) => {
    if (question && !await confirm(`${label}?`, question, label)) return;
    await post('board', { name, action }).then(({ text }) => toast(text), toastError);
    again();
  };
  return html`<div class="sessions-page">
    <header class="bar"><a class="icon" href="#/" aria-label="All sessions">‹</a><h1>${board?.title}</h1></header>
    <main class="column board">
      <${Waiting} error=${error} value=${board} />
      ${board?.sections.map((section) => html`<${BoardSection} key=${section.heading} ...${section} act=${act} />`)}
    </main>
  </div>`;
}

function BoardSection({ heading, facts, columns, rows = [], more = 0, act }) {
  const [isAll, setAll] = useState(false);
  const shown = isAll ? rows : rows.slice(0, SHOWN);
  const left = rows.length - shown.length + more;
  const hasActions = rows.some(({ actions }) => actions);
  return html`<section aria-label=${heading}>
    <h2>${heading}</h2>
    ${facts && html`<p class="dim">${facts}</p>`}
    ${rows.length > 0 && html`<table class="table" aria-label=${heading}>
      <thead><tr>${columns.map((name) => html`<th key=${name} scope="col">${name}</th>`)}${hasActions && html`<th scope="col"><span class="unseen">Actions</span></th>`}</tr></thead>
      <tbody>${shown.map(({ key, cells, actions }) => html`<tr key=${key}>
        ${cells.map((cell, at) => html`<td key=${at} data-column=${columns[at]}><${Cell} name=${columns[at]} ...${cell} /></td>`)}
        ${hasActions && html`<td><span class="buttons">${actions?.map((one) => html`<button key=${one.id} class="small" aria-label=${`${one.label} ${cells[0].text}`} onClick=${() => act(one)}>${one.label}</button>`)}</span></td>`}
      </tr>`)}</tbody></table>`}
    ${left > 0 && (left > more ? html`<button class="more" onClick=${() => setAll(true)}>… and ${plural(left, 'more row')}</button>` : html`<p class="dim">… and ${plural(left, 'more row')}</p>`)}
  </section>`;
}

const Cell = ({ name, text = '', tone = '', progress, session }) => html`${progress !== undefined && html`<progress aria-label=${name} value=${progress}></progress>`}
  ${session ? html`<a href=${linkTo(session)}>${text}</a>` : html`<span class=${`${tone} ${text.length < 24 ? 'short' : ''}`}>${text}</span>`}`;
