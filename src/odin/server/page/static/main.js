// The page: which part of it the address names, and the screen of a session.

import { html, load, render, save, useEffect, useEvents, useMedia, useMemo, useRef, useState } from './base.js';
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

function readRoute() {
  let hash = location.hash.slice(1);
  try {
    hash = decodeURIComponent(hash);
  } catch { /* somebody typed a lone % */ }
  const code = readCode(hash);
  if (code) return { name: 'pair', code };
  const [head, ...rest] = hash.split('/');
  if (head === 'share') return { name: 'share', id: rest[0] ?? '', secret: rest[1] ?? '' };
  if (head === '' && rest[0] === 's' && rest[1]) return { name: 'session', id: rest[1], agent: rest.slice(2).join('/') };
  return { name: 'list' };
}

function Lazy({ module, name, ...props }) {
  const [Kind, setKind] = useState(null);
  useEffect(() => { import(module).then((found) => setKind(() => found[name])); }, [module, name]);
  return Kind ? html`<${Kind} ...${props} />` : html`<main class="splash" aria-label="Odin Code"><p>Odin Code</p></main>`;
}

function Page() {
  const [route, setRoute] = useState(readRoute);
  const [token, updateToken] = useState(getToken);
  const [me, setMe] = useState(() => ({ name: '', right: load('right', '') }));
  const current = useRef(null);

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
  current.current = app;

  let shown;
  if (route.name === 'share') shown = html`<${Lazy} module="./shared.js" name="Shared" key=${route.id} id=${route.id} secret=${route.secret} />`;
  else if (route.name === 'pair' || !token) shown = html`<${Pairing} code=${route.code ?? ''} />`;
  else if (route.name === 'session') shown = html`<${SessionScreen} key=${`${route.id}/${route.agent}`} app=${app} id=${route.id} agent=${route.agent} />`;
  else shown = html`<${SessionList} app=${app} />`;
  return html`${shown}<${Dialogs} /><${Toasts} />`;
}

// --- the screen of a session ---

function SessionScreen({ app, id, agent }) {
  const session = useMemo(() => new Session(id, agent), [id, agent]);
  useEvents(session, 'state', 'link', 'mode');
  const isDocked = useMedia('(min-width: 1200px)');
  const [hasDrawer, setDrawer] = useState(false);
  const [hasPanel, setPanel] = useState(() => load('panel', 'on') === 'on');
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
    go: (to, toAgent = '') => { location.hash = `#/s/${to}${toAgent ? `/${encodeURIComponent(toAgent)}` : ''}`; },
    run: (line) => runLine(screen, line),
    togglePanel() {
      if (!matchMedia('(min-width: 1200px)').matches) return setDrawer((is) => !is);
      return setPanel((is) => { save('panel', is ? 'off' : 'on'); return !is; });
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
  useTitle(session);
  useAnswersElsewhere(session);

  const { state } = session;
  if (session.problem) {
    return html`<main class="splash" aria-labelledby="problem"><h1 id="problem">This session cannot be shown</h1>
      <p role="alert">${describe(session.problem)}</p><p class="buttons"><button onClick=${() => location.reload()}>Try again</button><a class="button" href="#/">All sessions</a></p></main>`;
  }
  const asked = state?.interactions ?? [];
  return html`<div class="screen" data-panel=${isDocked && hasPanel ? 'docked' : ''}>
    <${Header} screen=${screen} hasPanel=${isDocked ? hasPanel : hasDrawer} />
    <main class="main" aria-label="Session">
      ${agent ? html`<div class="agent-bar"><span>Agent <b>${agent}</b></span><a href=${`#/s/${id}`}>Back to the main agent</a></div>` : null}
      ${session.blocks.length || !state ? html`<${Transcript} session=${session} controls=${transcript} onEdit=${(block) => screen.run(`/fork ${block.key}`)} />` : html`<${Welcome} screen=${screen} />`}
      <div class="bottom">
        <${Reconnecting} session=${session} />
        ${!isDocked || !hasPanel ? html`<${TodoPanel} todos=${state?.todos ?? []} />` : null}
        <${ActivityLine} screen=${screen} />
        ${state?.queue?.length ? html`<${Queue} screen=${screen} />` : null}
        ${asked.length ? html`<${InteractionView} key=${asked[0].id} screen=${screen} ask=${asked[0]} total=${asked.length} />` : null}
        ${!app.isKnown ? null : app.can('prompt') ? html`<${Composer} screen=${screen} controls=${composer} />` : html`<p class="viewing">You can watch this session, but not write in it.</p>`}
        <${StatusLine} screen=${screen} />
      </div>
    </main>
    ${isDocked && hasPanel ? html`<${SidePanel} screen=${screen} />` : null}
    ${!isDocked && hasDrawer ? html`<${Drawer} screen=${screen} close=${() => setDrawer(false)} />` : null}
    <${Announcer} session=${session} />
  </div>`;
}

function Header({ screen, hasPanel }) {
  const { state } = screen;
  const agents = (state?.agents ?? []).filter(({ is_working }) => is_working).length;
  return html`<header class="bar">
    <a class="icon" href="#/" aria-label="All sessions">‹</a>
    <h1 title=${state?.cwd ?? ''}>${state ? state.title || 'New session' : ''}</h1>
    ${agents ? html`<button class="chip" onClick=${() => screen.run('/agents')}>${agents} ${agents === 1 ? 'agent' : 'agents'}</button>` : null}
    ${screen.can('prompt') ? html`<button class="icon" aria-label="New session in this folder" onClick=${() => screen.run('/new')}>+</button>` : null}
    <button class="icon" aria-label="Menu" onClick=${() => screen.run('/menu')}>⋯</button>
    <button class="icon" aria-label="Side panel" aria-expanded=${hasPanel} onClick=${screen.togglePanel}>☰</button>
  </header>`;
}

function Welcome({ screen }) {
  const { state } = screen;
  const branch = state.branch ? ` (${state.branch})` : '';
  return html`<div class="transcript-area"><div class="welcome" role="region" aria-label="Conversation">
    <p class="name"><b>Odin</b> <span class="dim">${state.version}</span></p>
    <dl><dt>model</dt><dd>${state.model}</dd><dt>directory</dt><dd>${state.cwd}${branch}</dd><dt>sandbox</dt><dd>${state.sandbox || 'none'}</dd></dl>
    ${state.model?.startsWith('offline/') ? html`<p class="warn">No model connected. Choose one with /model.</p>` : null}
    <ul><li>Describe a task. @ mentions a file, ! runs a command.</li><li>/ lists commands, ? the keys. /init writes AGENTS.md.</li></ul>
  </div></div>`;
}

// A word about the connection, but only when it takes longer than a moment.
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

// --- beyond the page ---

function useTitle(session) {
  useEffect(() => {
    const update = () => {
      const state = session.state ?? {};
      const mark = state.interactions?.length ? '? ' : state.is_working ? '✳ ' : '';
      document.title = `${mark}${state.title || 'Odin Code'}`;
    };
    return session.on('state', update);
  }, [session]);
}

function useNotifications(session) {
  useEffect(() => {
    let working = null;
    let asked = '';
    const notify = (title, body) => {
      if (!document.hidden || load('notify') !== 'on' || globalThis.Notification?.permission !== 'granted') return;
      try {
        const note = new Notification(title, { body: body.slice(0, 200), tag: session.id, icon: new URL('icon-512.png', import.meta.url).href });
        note.onclick = () => { focus(); note.close(); };
      } catch {
        // Some phones only show the notifications of a service worker.
      }
    };
    return session.on('state', () => {
      const { state } = session;
      const [ask] = state.interactions ?? [];
      if (ask && ask.id !== asked) notify('Odin needs you', ask.title);
      asked = ask?.id ?? '';
      if (state.is_working) working ??= Date.now();
      else if (working !== null) {
        if (document.hidden || Date.now() - working > LONG_TURN_S * 1000) notify('Odin is done', state.title || '');
        working = null;
      }
    });
  }, [session]);
}

function useAnswersElsewhere(session) {
  useEffect(() => {
    let open = new Map();
    return session.on('state', () => {
      const { interactions = [], answered } = session.state;
      const now = new Map(interactions.map((one) => [one.id, one]));
      for (const id of open.keys()) {
        if (now.has(id) || session.answered.has(id)) continue;
        if (answered?.id === id) toast(answered.text);
        else if (answered === undefined) toast('This was answered elsewhere, or withdrawn.');
      }
      open = now;
    });
  }, [session]);
}

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
