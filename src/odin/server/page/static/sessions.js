// The list of sessions: filter and search, a preview, and what can be done with one.

import { age, clip, html, join, modelName, oneLine, plural, useEffect, useLoaded, useMedia, usd, useState, when } from './base.js';
import { ask, describe, get, post } from './connection.js';
import { askText, confirm, Empty, pick, pickAction, toast, toastError, Waiting } from './dialogs.js';

const nameOf = (session) => oneLine(session.title || session.first || session.original || 'New session', 200);
const folderName = (cwd) => cwd.split('/').filter(Boolean).pop() ?? cwd;

export function SessionList({ app }) {
  const [sessions, error, reload] = useLoaded(() => get('sessions'), []);
  const [words, setWords] = useState('');
  const [found, setFound] = useState(null);
  const [chosen, setChosen] = useState('');
  const [isAll, setAll] = useState(false);
  const isWide = useMedia('(min-width: 900px)');
  useEffect(() => {
    document.title = 'Odin Code';
    const timer = setInterval(() => document.visibilityState === 'visible' && reload(), 20_000);
    return () => clearInterval(timer);
  }, []);

  const listed = (sessions ?? []).filter((one) => isAll || !one.headless).sort((a, b) => b.modified - a.modified);
  const folders = [...new Set(listed.map(({ cwd }) => cwd).filter(Boolean))];
  const newestOf = (cwd) => listed.find((one) => one.cwd === cwd)?.id;
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = listed.filter((one) => wanted.every((word) => `${nameOf(one)} ${one.original ?? ''} ${one.cwd} ${one.id}`.toLowerCase().includes(word)));

  useEffect(() => {
    setFound(null);
    if (words.trim().length < 2) return undefined;
    const timer = setTimeout(async () => {
      const results = await Promise.allSettled(folders.slice(0, 8).map((cwd) => get(`sessions/${newestOf(cwd)}/search`, { words })));
      setFound(results.flatMap((one) => one.value ?? []));
    }, 350);
    return () => clearTimeout(timer);
  }, [words, Boolean(sessions)]);
  const others = (found ?? []).filter(({ session }) => !shown.some(({ id }) => id === session.id));

  const start = async () => {
    try {
      let cwd = folders[0] ?? '';
      if (folders.length > 1) {
        cwd = await pick('New session in', folders.map((path) => ({ label: folderName(path), detail: path, value: path })), { own: (path) => path });
        if (cwd === undefined) return;
      }
      const { session } = await post('sessions', { cwd });
      location.hash = `#/s/${session}`;
    } catch (problem) {
      toastError(problem);
    }
  };

  const open = (id) => { location.hash = `#/s/${id}`; };
  const actOn = (session) => manageSession(app, session, reload);
  const onKeyDown = (event) => {
    const links = [...document.querySelectorAll('.sessions a.session-link')];
    const here = links.indexOf(document.activeElement);
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by && (here >= 0 || event.target.type === 'search')) {
      links[Math.max(0, Math.min(here + by, links.length - 1))]?.focus();
      event.preventDefault();
    } else if (here >= 0 && ['F2', 'Delete', 'F5', 'F6'].includes(event.key)) {
      const one = listed.find(({ id }) => id === links[here].dataset.session);
      const actions = { F2: rename, Delete: remove, F5: copy, F6: exportSession };
      event.preventDefault();
      actions[event.key](one, reload);
    }
  };

  const previewed = chosen || shown[0]?.id;
  return html`<div class="sessions-page">
    <header class="bar">
      <img src="page/icon.svg" alt="" width="28" height="28" />
      <h1>Sessions</h1>
      <button class="icon" aria-label="Settings" onClick=${app.openSettings}>⚙</button>
      ${app.can('prompt') ? html`<button class="primary" onClick=${start}>New session</button>` : null}
    </header>
    <main class="sessions" onKeyDown=${onKeyDown}>
      <div class="column">
        <input type="search" class="filter" aria-label="Search sessions" placeholder="Search titles and texts" value=${words} dir="auto" onInput=${(event) => setWords(event.target.value)} />
        ${!sessions ? html`<${Waiting} error=${error} />` : null}
        ${error && sessions ? html`<p class="remark warn" role="status">${describe(error)}</p>` : null}
        <ul class="rows-list" aria-label="Sessions">${shown.map((one) => html`<${Row} key=${one.id} session=${one} isHere=${isWide && one.id === previewed} folders=${folders} onFocus=${() => setChosen(one.id)} actOn=${app.can('prompt') ? actOn : null} />`)}</ul>
        ${others.length ? html`<h2 class="found-head">In the conversations</h2><ul class="rows-list" aria-label="Found in conversations">${others.map(({ session, where, snippet }) => html`
          <${Row} key=${session.id} session=${session} found=${`${where}: ${snippet}`} isHere=${isWide && session.id === previewed} folders=${folders} onFocus=${() => setChosen(session.id)} actOn=${app.can('prompt') ? actOn : null} />`)}</ul>` : null}
        ${sessions && !shown.length && !others.length ? html`<${Empty}>${words ? (found ? 'Nothing found.' : 'Searching…') : 'No sessions yet.'}<//>` : null}
        ${sessions?.some(({ headless }) => headless) ? html`<button class="more" onClick=${() => setAll(!isAll)}>${isAll ? 'Hide sessions of programs' : 'Also show sessions of programs'}</button>` : null}
      </div>
      ${isWide && previewed ? html`<${Preview} key=${previewed} session=${(sessions ?? []).find(({ id }) => id === previewed)} via=${newestOf((sessions ?? []).find(({ id }) => id === previewed)?.cwd) ?? previewed} open=${open} />` : null}
    </main>
  </div>`;
}

function Row({ session, found, isHere, folders, onFocus, actOn }) {
  const facts = join(age(session.modified), session.turns && plural(session.turns, 'prompt'), folders.length > 1 && folderName(session.cwd),
    session.cost_usd > 0 && usd(session.cost_usd), session.locked && 'open');
  return html`<li class=${isHere ? 'here' : ''}>
    <a class="session-link" href=${`#/s/${session.id}`} data-session=${session.id} onFocus=${onFocus} onMouseEnter=${onFocus}>
      <span class="title" dir="auto">${nameOf(session)}</span>
      ${found ? html`<span class="found" dir="auto">${clip(found, 160)}</span>` : null}
      <span class="facts">${facts}</span>
    </a>
    ${actOn ? html`<button class="icon" aria-label=${`Actions for ${nameOf(session)}`} onClick=${() => actOn(session)}>⋯</button>` : null}
  </li>`;
}

function Preview({ session, via, open }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    const aborter = new AbortController();
    // Not while somebody only moves over the list.
    const timer = setTimeout(() => get(`sessions/${via}/preview`, { name: session.id }, aborter.signal).then(setFound, (problem) => !aborter.signal.aborted && setError(problem)), 250);
    return () => { clearTimeout(timer); aborter.abort(); };
  }, [session?.id]);
  if (!session) return null;
  return html`<aside class="preview" aria-label="Preview">
    <h2>${nameOf(session)}</h2>
    <p class="facts">${join(when(session.created || session.modified), session.model && modelName(session.model))}</p>
    <p class="facts">${session.cwd}</p>
    ${!found ? html`<${Waiting} error=${error} />` : html`
      ${found.earlier ? html`<p class="dim">…</p>` : null}
      ${found.exchanges.map((one, at) => html`<div key=${at} class="exchange"><p class="words">› ${one.prompt}</p><p>${one.answer}</p></div>`)}
      ${found.exchanges.length ? null : html`<${Empty}>No prompts yet.<//>`}`}
    <button class="primary" onClick=${() => open(session.id)}>Open</button>
  </aside>`;
}

// --- what can be done with a session ---

const manageSession = (app, session, done) => pickAction(nameOf(session), [
  ['Open', () => { location.hash = `#/s/${session.id}`; }],
  ['Rename', () => rename(session, done), 'F2'],
  ['Continue in a copy', () => copy(session, done), 'F5'],
  ['Export', () => exportSession(session), 'F6'],
  ...(app.can('approve') ? [['Delete', () => remove(session, done), 'Del']] : []),
]);

export async function rename(session, done = () => {}) {
  const title = await askText('Rename the session', 'Title', session.title || nameOf(session));
  if (title) await post(`sessions/${session.id}/title`, { title }).then(done, toastError);
}

export async function copy(session) {
  try {
    const { session: id } = await post(`sessions/${session.id}/fork`, {});
    location.hash = `#/s/${id}`;
    toast('This is a copy of the session.');
  } catch (error) {
    toastError(error);
  }
}

export async function remove(session, done = () => {}) {
  if (!await confirm('Delete the session?', `“${clip(nameOf(session), 80)}” and its log will be deleted. This cannot be undone.`, 'Delete')) return;
  await ask('DELETE', `sessions/${session.id}`).then(done, toastError);
}

const FORMS = [['Markdown', 'markdown', 'md', 'text/markdown'], ['HTML', 'html', 'html', 'text/html'], ['JSON', 'json', 'json', 'application/json']];

export async function exportSession(session) {
  const form = await pick('Export as', FORMS.map((one) => ({ label: one[0], value: one })), { isFiltered: false });
  if (!form) return;
  try {
    const text = await get(`sessions/${session.id}/export`, { form: form[1] });
    const name = (session.title || session.id).replace(/[^\p{L}\p{N}]+/gu, '-').slice(0, 60) || 'session';
    download(`${name}.${form[2]}`, new Blob([text], { type: form[3] }));
  } catch (error) {
    toastError(error);
  }
}

function download(name, blob) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
