// The list of sessions: filter and search, a preview, and what can be done with one.

import { age, boardLink, clip, html, join, linkTo, modelName, oneLine, plural, typed, useEffect, useLoaded, useMedia, usd, useState, when } from './base.js';
import { ask, get, post } from './connection.js';
import { askText, confirm, Empty, pick, pickAction, toast, toastError, Waiting } from './dialogs.js';

const nameOf = (session) => oneLine(session.title || session.first || session.original || 'New session', 200);
const folderName = (cwd) => cwd.split('/').filter(Boolean).pop() ?? cwd;
const open = (id) => { location.hash = linkTo(id); };

export function SessionList({ app }) {
  const [sessions, error, reload] = useLoaded(() => get('sessions'), [], 20_000);
  const [words, setWords] = useState('');
  const [found, setFound] = useState(null);
  const [chosen, setChosen] = useState('');
  const [isAll, setAll] = useState(false);
  const isWide = useMedia('(min-width: 900px)');
  const [boards = []] = useLoaded(async () => (app.can('approve') ? get('boards') : []), [app]);
  document.title = 'Odin Code';

  const all = sessions ?? [];
  const listed = all.filter((one) => isAll || !one.headless).sort((a, b) => b.modified - a.modified);
  const folders = [...new Set(listed.map(({ cwd }) => cwd).filter(Boolean))];
  const newestOf = (cwd) => listed.find((one) => one.cwd === cwd)?.id;
  const wanted = words.toLowerCase().split(/\s+/);
  const shown = listed.filter((one) => wanted.every((word) => `${nameOf(one)} ${one.original ?? ''} ${one.cwd} ${one.id}`.toLowerCase().includes(word)));
  const others = (found ?? []).filter(({ session }) => !shown.some(({ id }) => id === session.id));

  useEffect(() => {
    setFound(null);
    if (words.trim().length < 2) return undefined;
    const timer = setTimeout(async () => {
      const results = await Promise.allSettled(folders.slice(0, 8).map((cwd) => get(`sessions/${newestOf(cwd)}/search`, { words })));
      setFound(results.flatMap((one) => one.value ?? []));
    }, 350);
    return () => clearTimeout(timer);
  }, [words, Boolean(sessions)]);

  const start = async () => {
    let [cwd = ''] = folders;
    if (folders.length > 1) cwd = await pick('New session in', folders.map((path) => ({ label: folderName(path), detail: path, value: path })), { own: (path) => path });
    if (cwd !== undefined) await post('sessions', { cwd }).then(({ session }) => open(session), toastError);
  };

  const onKeyDown = (event) => {
    const links = [...document.querySelectorAll('a.session-link')];
    const here = links.indexOf(document.activeElement);
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const session = app.can('prompt') && all.find(({ id }) => id === links[here]?.dataset.session);
    const action = session && actionsOn(app, session, reload).find(([, , key]) => key === event.key);
    if (by && (here >= 0 || event.target.type === 'search')) links[Math.max(0, Math.min(here + by, links.length - 1))]?.focus();
    else if (action) action[1]();
    else return;
    event.preventDefault();
  };

  const previewed = all.find(({ id }) => id === chosen) ?? shown[0];
  const row = (session, text) => html`<${Row} key=${session.id} ...${{ session, text }} isHere=${isWide && session.id === previewed?.id} hasFolder=${folders.length > 1}
    onFocus=${() => setChosen(session.id)} actOn=${app.can('prompt') && (() => pickAction(nameOf(session), actionsOn(app, session, reload)))} />`;
  return html`<div class="sessions-page">
    <header class="bar">
      <img src="page/icon.svg" alt="" width="28" height="28" />
      <h1>Sessions</h1>
      <button class="icon" aria-label="Settings" onClick=${app.openSettings}>⚙</button>
      ${app.can('prompt') && html`<button class="primary" onClick=${start}>New session</button>`}
    </header>
    <main class="sessions" onKeyDown=${onKeyDown}>
      <div class="column">
        <input type="search" class="filter" aria-label="Search sessions" placeholder="Search titles and texts" value=${words} onInput=${typed(setWords)} />
        ${boards.length > 0 && html`<nav class="pairs" aria-label="Boards">${boards.map(({ name, title }) => html`<a key=${name} class="button" href=${boardLink(name)}>${title}</a>`)}</nav>`}
        <${Waiting} error=${error} value=${sessions} />
        <ul class="rows-list" aria-label="Sessions">${shown.map((one) => row(one))}</ul>
        ${others.length > 0 && html`<h3>In the conversations</h3>
          <ul class="rows-list" aria-label="Found in conversations">${others.map(({ session, where, snippet }) => row(session, `${where}: ${snippet}`))}</ul>`}
        ${sessions && !shown.length && !others.length > 0 && html`<${Empty}>${!words ? 'No sessions yet.' : found || words.trim().length < 2 ? 'Nothing found.' : 'Searching…'}<//>`}
        ${all.some(({ headless }) => headless) && html`<button class="more" onClick=${() => setAll(!isAll)}>${isAll ? 'Hide sessions of programs' : 'Show sessions of programs'}</button>`}
      </div>
      ${isWide && previewed && html`<${Preview} key=${previewed.id} session=${previewed} via=${newestOf(previewed.cwd) ?? previewed.id} />`}
    </main>
  </div>`;
}

function Row({ session, text, isHere, hasFolder, onFocus, actOn }) {
  const facts = join(age(session.modified), session.turns && plural(session.turns, 'prompt'), hasFolder && folderName(session.cwd),
    session.cost_usd > 0 && usd(session.cost_usd), session.locked && 'open');
  return html`<li class=${isHere ? 'here' : ''}>
    <a class="session-link" href=${linkTo(session.id)} data-session=${session.id} onFocus=${onFocus} onMouseEnter=${onFocus}>
      <span class="title">${nameOf(session)}</span>
      ${text && html`<span class="found">${clip(text, 160)}</span>`}
      <span class="facts">${facts}</span>
    </a>
    ${actOn && html`<button class="icon" aria-label=${`Actions for ${nameOf(session)}`} onClick=${actOn}>⋯</button>`}
  </li>`;
}

function Preview({ session, via }) {
  // Not while somebody only moves over the list.
  const [found, error] = useLoaded(async (signal) => {
    await new Promise((done) => setTimeout(done, 250));
    return signal.aborted ? undefined : get(`sessions/${via}/preview`, { name: session.id }, signal);
  }, []);
  return html`<aside class="preview" aria-label="Preview">
    <h2>${nameOf(session)}</h2>
    <p class="facts">${join(when(session.created || session.modified), session.model && modelName(session.model))}</p>
    <p class="facts">${session.cwd}</p>
    ${!found ? html`<${Waiting} error=${error} />` : html`
      ${found.earlier > 0 && html`<p class="dim">…</p>`}
      ${found.exchanges.map((one, at) => html`<div key=${at} class="exchange"><p class="words">› ${one.prompt}</p><p>${one.answer}</p></div>`)}
      ${found.exchanges.length ? null : html`<${Empty}>No prompts yet.<//>`}`}
    <button class="primary" onClick=${() => open(session.id)}>Open</button>
  </aside>`;
}

const actionsOn = (app, session, done) => [
  ['Open', () => open(session.id)],
  ['Rename', () => rename(session, done), 'F2'],
  ['Continue in a copy', () => copy(session), 'F5'],
  ['Export', () => exportSession(session), 'F6'],
  ...(app.can('approve') ? [['Delete', () => remove(session, done), 'Delete']] : []),
];

export async function rename(session, done = () => {}) {
  const title = await askText('Rename the session', 'Title', session.title || nameOf(session));
  if (title) await post(`sessions/${session.id}/title`, { title }).then(done, toastError);
}

export const copy = (session) => post(`sessions/${session.id}/fork`).then((copied) => {
  open(copied.session);
  toast('This is a copy of the session.');
}, toastError);

export async function remove(session, done = () => {}) {
  if (!await confirm('Delete the session?', `“${clip(nameOf(session), 80)}” and its log will be deleted. This cannot be undone.`, 'Delete')) return;
  await ask('DELETE', `sessions/${session.id}`).then(done, toastError);
}

const FORMS = [['Markdown', 'md', 'text/markdown'], ['HTML', 'html', 'text/html'], ['JSON', 'json', 'application/json']];

export async function exportSession(session) {
  const chosen = await pick('Export as', FORMS.map((one) => ({ label: one[0], value: one })), { isFiltered: false });
  if (!chosen) return;
  const [form, ending, type] = chosen;
  try {
    const text = await get(`sessions/${session.id}/export`, { form: form.toLowerCase() });
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = `${(session.title || session.id).replace(/[^\p{L}\p{N}]+/gu, '-').slice(0, 60) || 'session'}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  } catch (error) {
    toastError(error);
  }
}
