// The page: which part of it the address names, and the screen of a session.

import { Facts, html, linkTo, load, plural, render, save, useEffect, useEvents, useLoaded, useMedia, useMemo, useRef, useState } from './base.js';
import { access, describe, get, getToken, setToken } from './connection.js';
import { handleKey, openSettings, runLine } from './commands.js';
import { Composer } from './composer.js';
import { closeDialogs, Dialogs, toast, toastError, Toasts } from './dialogs.js';
import { InteractionView } from './interaction.js';
import { ActivityLine, Drawer, Queue, SidePanel, StatusLine, TodoPanel } from './panels.js';
import { Pairing, readCode } from './pairing.js';
import { Session } from './session.js';
import { exportSession, SessionList } from './sessions.js';
import { Announcer, Transcript } from './transcript.js';

const RIGHTS = ['view', 'prompt', 'approve'];
const LONG_TURN_S = 10;
const WIDE = '(min-width: 1200px)';

function readRoute() {
  let hash = location.hash.slice(1);
  try {
    hash = decodeURIComponent(hash);
  } catch { /* somebody typed a lone % */ }
  const code = readCode(hash);
  if (code) return { name: 'pair', code };
  const [head, ...rest] = hash.split('/');
  if (head === 'share') return { name: 'share', id: rest[0] ?? '', secret: rest[1] ?? '' };
  if (head === '' && rest[0] === 'b' && rest[1]) return { name: 'board', id: rest[1] };
  if (head === '' && rest[0] === 's' && rest[1]) return { name: 'session', id: rest[1], agent: rest.slice(2).join('/') };
  return { name: 'list' };
}

// A part that few need is loaded when it is shown.
const loadLater = (load, name) => (props) => {
  const [found] = useLoaded(load, []);
  return found ? html`<${found[name]} ...${props} />` : null;
};
const Shared = loadLater(() => import('./shared.js'), 'Shared');
const BoardPage = loadLater(() => import('./boards.js'), 'BoardPage');

function Page() {
  const [route, setRoute] = useState(readRoute);
  const [token, updateToken] = useState(getToken);
  const [me, setMe] = useState(() => ({ name: '', right: load('right', '') }));

  useEffect(() => {
    const update = () => { closeDialogs(); setRoute(readRoute()); };
    const off = access.on('token', updateToken);
    // Another tab has paired, or has forgotten the token.
    const sync = () => updateToken(getToken());
    addEventListener('hashchange', update);
    addEventListener('storage', sync);
    return () => { removeEventListener('hashchange', update); removeEventListener('storage', sync); off(); };
  }, []);
  useEffect(() => {
    if (!token || route.name === 'share') return;
    get('me').then((found) => { setMe(found); save('right', found.right); }, (error) => !error.isOffline && error.status !== 401 && toastError(error));
  }, [token]);

  const app = useMemo(() => ({
    me,
    can: (right) => RIGHTS.indexOf(me.right) >= RIGHTS.indexOf(right),
    isKnown: Boolean(me.right),
    openSettings: () => openSettings(app),
    forget: () => setToken(''),
  }), [me]);

  let shown;
  if (route.name === 'share') shown = html`<${Shared} key=${route.id + route.secret} id=${route.id} secret=${route.secret} />`;
  else if (route.name === 'pair' || !token) shown = html`<${Pairing} code=${route.code ?? ''} />`;
  else if (route.name === 'session') shown = html`<${SessionScreen} key=${`${route.id}/${route.agent}`} app=${app} id=${route.id} agent=${route.agent} />`;
  else if (route.name === 'board') shown = html`<${BoardPage} key=${route.id} name=${route.id} />`;
  else shown = html`<${SessionList} app=${app} />`;
  return html`${shown}<${Dialogs} /><${Toasts} />`;
}

function SessionScreen({ app, id, agent }) {
  const session = useMemo(() => new Session(id, agent), [id, agent]);
  useEvents(session, 'state', 'link', 'mode');
  const isDocked = useMedia(WIDE);
  const [panels, setPanels] = useState({ docked: load('panel') !== 'off' });
  const hasPanel = Boolean(panels[isDocked ? 'docked' : 'drawer']);
  const transcript = useRef(null);
  const composer = useRef(null);
  useEffect(() => { session.open(); return () => session.close(); }, [session]);

  const screen = useMemo(() => ({
    ...app,
    session,
    get state() { return session.state; },
    transcript,
    composer,
    async act(op, words = '') {
      try {
        const { done } = await session.submit(op);
        if (done && words) toast(words);
        return done;
      } catch (error) {
        toastError(error);
        return false;
      }
    },
    go: (...to) => { location.hash = linkTo(...to); },
    run: (line) => runLine(screen, line),
    togglePanel() {
      const place = matchMedia(WIDE).matches ? 'docked' : 'drawer';
      setPanels((all) => {
        if (place === 'docked') save('panel', all.docked ? 'off' : '');
        return { ...all, [place]: !all[place] };
      });
    },
    stop: () => session.submit({ type: 'Interrupt', agent }).then(({ done }) => !done && toast('Nothing is running.'), toastError),
    write: () => composer.current?.focus(),
    export: () => exportSession({ id, title: session.state?.title }),
  }), [app, session]);
  transcript.write = screen.write;

  useEffect(() => {
    const onKey = (event) => !document.querySelector('dialog[open]') && handleKey(screen, event);
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, [screen]);
  useNotifications(session);

  const { state } = session;
  if (session.problem) {
    return html`<main class="splash" aria-labelledby="problem"><h1 id="problem">This session cannot be shown</h1>
      <p role="alert">${describe(session.problem)}</p><p class="buttons"><button onClick=${() => location.reload()}>Try again</button><a class="button" href="#/">All sessions</a></p></main>`;
  }
  const asked = state?.interactions ?? [];
  return html`<div class="screen" data-panel=${hasPanel && isDocked ? 'docked' : ''}>
    <${Header} screen=${screen} hasPanel=${hasPanel} />
    <main class="main" aria-label="Session">
      ${agent && html`<div class="agent-bar"><span>Agent <b>${agent}</b></span><a href=${linkTo(id)}>Back to the main agent</a></div>`}
      <${Conversation} screen=${screen} />
      <div class="bottom">
        <${Reconnecting} session=${session} />
        <${TodoPanel} todos=${state?.todos ?? []} />
        <${ActivityLine} state=${state} />
        ${state?.queue?.length > 0 && html`<${Queue} screen=${screen} />`}
        ${asked.length > 0 && html`<${InteractionView} key=${asked[0].id} screen=${screen} ask=${asked[0]} total=${asked.length} />`}
        ${!app.isKnown ? null : app.can('prompt') ? html`<${Composer} screen=${screen} controls=${composer} />` : html`<p class="viewing">You can watch this session, but not write in it.</p>`}
        <${StatusLine} parts=${state?.status} />
      </div>
    </main>
    ${hasPanel && html`<${isDocked ? SidePanel : Drawer} screen=${screen} close=${screen.togglePanel} />`}
    <${Announcer} session=${session} />
  </div>`;
}

function Header({ screen, hasPanel }) {
  const { state } = screen;
  const agents = (state?.agents ?? []).filter(({ is_working }) => is_working).length;
  return html`<header class="bar">
    <a class="icon" href="#/" aria-label="All sessions">‹</a>
    <h1 title=${state?.cwd ?? ''}>${state ? state.title || 'New session' : ''}</h1>
    ${agents > 0 && html`<button class="chip" onClick=${() => screen.run('/agents')}>${plural(agents, 'agent')}</button>`}
    ${screen.can('prompt') && html`<button class="icon" aria-label="New session in this folder" onClick=${() => screen.run('/new')}>+</button>`}
    <button class="icon" aria-label="Menu" onClick=${() => screen.run('/menu')}>⋯</button>
    <button class="icon" aria-label="Side panel" aria-expanded=${hasPanel} onClick=${screen.togglePanel}>☰</button>
  </header>`;
}

function Conversation({ screen }) {
  const { session } = screen;
  useEvents(session, 'blocks'); // the first may come without a change of the state
  return session.blocks.length || !session.state
    ? html`<${Transcript} session=${session} controls=${screen.transcript} onEdit=${(block) => screen.run(`/fork ${block.key}`)} />` : html`<${Welcome} screen=${screen} />`;
}

function Welcome({ screen }) {
  const { state } = screen;
  const branch = state.branch ? ` (${state.branch})` : '';
  return html`<div class="transcript-area"><div class="welcome" role="region" aria-label="Conversation">
    <p class="name"><b>Odin</b> <span class="dim">${state.version}</span></p>
    <${Facts} rows=${[['model', state.model], ['directory', `${state.cwd}${branch}`], ['sandbox', state.sandbox || 'none']]} />
    <ul><li>Describe a task. @ mentions a file, ! runs a command.</li><li>/ lists commands, ? the keys. /init writes AGENTS.md.</li></ul>
  </div></div>`;
}

function Reconnecting({ session }) {
  useEvents(session, 'link');
  const [isLong, setLong] = useState(false);
  const isLost = session.link !== 'live';
  useEffect(() => {
    setLong(false);
    if (!isLost) return undefined;
    const timer = setTimeout(() => setLong(true), 1200);
    return () => clearTimeout(timer);
  }, [isLost]);
  return html`<div class="reconnecting" role="status">${isLost && isLong ? (session.state ? 'Reconnecting…' : 'Connecting…') : ''}</div>`;
}

function useNotifications(session) {
  useEffect(() => {
    let working = null;
    let open = [];
    const notify = (title, body) => {
      if (!document.hidden || load('notify') !== 'on' || globalThis.Notification?.permission !== 'granted') return;
      try {
        const note = new Notification(title, { body: body.slice(0, 200), tag: session.id });
        note.onclick = () => { focus(); note.close(); };
      } catch {
        // Some phones only show the notifications of a service worker.
      }
    };
    return session.on('state', () => {
      const { state } = session;
      const { interactions, answered } = state;
      document.title = `${interactions.length ? '? ' : state.is_working ? '✳ ' : ''}${state.title || 'Odin Code'}`;
      if (interactions[0] && interactions[0].id !== open[0]) notify('Odin needs you', interactions[0].title);
      const now = interactions.map(({ id }) => id);
      if (answered && open.includes(answered.id) && !now.includes(answered.id) && !session.answered.has(answered.id)) toast(answered.text);
      open = now;
      if (state.is_working) working ??= Date.now();
      else if (working !== null) {
        if (document.hidden || Date.now() - working > LONG_TURN_S * 1000) notify('Odin is done', state.title || '');
        working = null;
      }
    });
  }, [session]);
}

// Nothing is sent to an address: the listener of each form has what was typed.
addEventListener('submit', (event) => event.preventDefault(), true);

// Telephones cover a part of the page with their keyboard.
function fitKeyboard() {
  const view = globalThis.visualViewport;
  if (!view) return;
  const fit = () => document.documentElement.style.setProperty('--height', `${Math.round(view.height)}px`);
  view.addEventListener('resize', fit);
  fit();
}

fitKeyboard();
const root = document.getElementById('app');
root.replaceChildren();
render(html`<${Page} />`, root);
