// Slash commands that the page answers itself, the keys of a session, and what is chosen from a list.

import { boardLink, count, html, join, load, nextMode, randomId, save, useState } from './base.js';
import { get, post, submit } from './connection.js';
import { confirm, Dialog, openDialog, pick, pickAction, toast, toastError } from './dialogs.js';
import { copy, remove, rename } from './sessions.js';

// The sheets are loaded when the first is opened.
const report = (name) => async (...given) => (await import('./reports.js'))[name](...given);
const goHome = () => { location.hash = '#/'; };
// With arguments, the server runs the command.
const bare = (run) => (screen, rest) => (rest ? false : run(screen));

const NATIVE = {
  resume: goHome, sessions: goHome, exit: goHome, quit: goHome,
  new: (screen) => open(screen, 'new'),
  fork: (screen, turn) => open(screen, 'fork', turn ? { turn } : {}),
  diff: report('showChanges'),
  help: report('showHelp'), keys: report('showHelp'),
  errors: report('showErrors'),
  ps: report('showProcesses'),
  agents: bare(report('showAgents')),
  rewind: bare(report('rewind')), undo: bare(report('rewind')), redo: bare(report('redo')),
  contents: showContents,
  queue: bare(({ state }) => (state?.queue.length ? dispatchEvent(new Event('odin-queue')) : toast('The queue is empty.'))),
  export: bare((screen) => screen.export()),
  copy: copyAnswer,
  theme: (screen, rest) => (rest in THEMES ? setTheme(rest) : screen.openSettings()),
  boards: showBoards,
  menu: showMenu,
  model: bare(showModels), models: bare(showModels),
  effort: bare((screen) => choose(screen, 'effort', 'Reasoning effort', screen.state.effort || 'default', (effort) => ({ type: 'SetEffort', effort: effort === 'default' ? '' : effort, agent: screen.session.agent }))),
  role: bare((screen) => choose(screen, 'role', 'Role', screen.state.role, (role) => ({ type: 'SetRole', role }))),
  permissions: bare((screen) => choose(screen, 'permissions', 'Permission mode', screen.state.permission_mode, (mode) => ({ type: 'SetPermissionMode', mode }))),
  ask: (screen, rest) => useMode(screen, 'ask_mode', rest),
  plan: (screen, rest) => useMode(screen, 'plan_mode', rest),
  edit: (screen, rest) => useMode(screen, 'edit_mode', rest),
  focus: (screen, rest) => screen.go(screen.session.id, rest === 'main' ? '' : rest),
  steer: (screen, rest) => (rest ? prompt(screen, rest, { delivery: 'steer' }) : false),
};

// Returns true if the line is dealt with; a custom command is a prompt.
export async function runLine(screen, line) {
  const [, name, rest] = /^\/(\S*)\s*([\s\S]*)$/.exec(line) ?? [];
  const { session } = screen;
  try {
    const native = NATIVE[name];
    if (native && await native(screen, rest.trim()) !== false) return true;
    if (!native && (await get(`${session.path}/commands`)).some((one) => [one.name, one.name.replaceAll('/', ':'), `${one.plugin}:${one.name}`].includes(name))) return false;
    await follow(screen, await runOnServer(screen, line), line);
  } catch (error) {
    toastError(error);
  }
  return true;
}

const CHARACTER = 7.3; // pixels of a column in a report

export const runOnServer = ({ session }, line) => post(`${session.path}/command`, {
  line, agent: session.agent, mode: session.mode, columns: Math.floor((Math.min(innerWidth, 980) - 48) / CHARACTER),
});

// What a command answers with: text, another session, a draft, a prompt, a mode, an agent.
async function follow(screen, answer, line) {
  const { session } = screen;
  const to = answer.session;
  if (answer.mode !== session.mode) session.mode = answer.mode;
  if (answer.prompt) await submit(to || session.id, { ...answer.prompt, type: 'Prompt' });
  if (answer.draft && !to) screen.composer.current?.setText(answer.draft);
  const said = answer.text.trim();
  if (said.length < 160 && !said.includes('\n')) toast(said);
  else report('showText')(screen, line, said);
  if (to) enter(screen, answer);
  else if (answer.agent !== session.agent) screen.go(session.id, answer.agent);
}

async function prompt(screen, text, more = {}) {
  const { session } = screen;
  await session.submit({ type: 'Prompt', id: randomId(), text, mode: session.mode, agent: session.agent, ...more });
}

async function useMode(screen, mode, rest) {
  screen.session.mode = mode;
  if (rest) await prompt(screen, rest, { mode });
}

function enter(screen, { session, draft }) {
  if (draft) save(`draft:${session}:`, draft);
  screen.go(session);
}

async function open(screen, how, body) {
  enter(screen, await post(`${screen.session.path}/${how}`, body));
  if (how === 'fork') toast('This is a copy of the session.');
}

function copyAnswer({ session }) {
  const answer = session.blocks.findLast(({ kind }) => kind === 'answer');
  if (!answer) toast('There is no answer yet.');
  else navigator.clipboard?.writeText(answer.text).then(() => toast('The last answer was copied.'), toastError);
}

async function showContents(screen) {
  const prompts = screen.session.blocks.filter(({ kind, is_mail: isMail }) => kind === 'prompt' && !isMail);
  const key = await pick('Prompts of this conversation', prompts.map((one) => ({ label: one.text.slice(0, 200) || '(continued)', value: one.key })), { empty: 'No prompts yet.' });
  if (key) screen.transcript.current?.show(key);
}

function showMenu(screen) {
  const may = (right, ...rows) => (screen.can(right) ? rows : []);
  const row = (words, line, key) => [words, () => screen.run(line), key];
  const { state, session } = screen;
  const summary = { id: session.id, title: state?.title };
  pickAction('Session', [
    ...may('prompt', row('Rewind or redo', '/rewind', 'Esc Esc')),
    row('Changed files', '/diff'),
    row('Prompts', '/contents', 'Alt+C'),
    ['Search', () => screen.transcript.current?.search(), '/'],
    row('Context', '/context'),
    row('Usage', '/usage'),
    row('Background processes', '/ps'),
    row('Agents', '/agents'),
    ...may('prompt', ['Compact the conversation', () => screen.act({ type: 'Compact', agent: session.agent }, 'The conversation is being summarized.')],
      ['Rename', () => rename(summary)], ['Continue in a copy', () => copy(summary)]),
    ['Export', screen.export],
    ...may('approve', ['Delete', () => remove(summary, goHome)]),
    ...may('approve', row('Boards', '/boards')),
    row('Status', '/status'),
    row('Keys and commands', '/help', '?'),
    ['Settings', screen.openSettings],
  ]);
}

async function showBoards() {
  const name = await pick('Boards', () => get('boards').then((boards) => boards.map((one) => ({ label: one.title, value: one.name }))), { isFiltered: false, empty: 'No boards. The gateway has one when it has run.' });
  if (name) location.hash = boardLink(name);
}

async function showModels(screen) {
  const { session, state } = screen;
  const readModels = () => get(`${session.path}/models`, { servers: 'configured' }).then((models) => models.map((one) => ({
    label: one.model, isCurrent: one.model === state.model, value: one.model,
    detail: join(one.context && `${count(one.context)} tokens`, typeof one.price_input === 'number' && `$${one.price_input} in, $${one.price_output} out`, one.note, one.pool?.join(', ')),
  })));
  const model = await pick('Models', readModels, { own: (words) => `Use ${words}`, empty: 'No models found.' });
  if (model) await screen.act({ type: 'SetModel', model, check: true, agent: session.agent }, `The next request goes to ${model}.`);
}

// What can follow a command, as it is completed when somebody types.
async function choose(screen, name, title, current, makeOp) {
  if (name !== 'effort' && !screen.can('approve')) return toast(`Changing the ${title.toLowerCase()} needs the right to approve.`);
  const line = `/${name} `;
  const value = await pick(title, () => get(`${screen.session.path}/complete`, { line, column: String(line.length) }).then(({ items }) => items.map(({ label, help }) => (
    { label, detail: help, value: label, isCurrent: label === current }))), { isFiltered: false });
  return value && screen.act(makeOp(value));
}

const THEMES = { auto: 'as the system', light: 'light', dark: 'dark' };

function setTheme(theme) {
  save('theme', theme === 'auto' ? '' : theme);
  document.documentElement.dataset.theme = theme;
}

export const openSettings = (app) => openDialog(Settings, { app });

function Settings({ app, close }) {
  const [theme, update] = useState(() => load('theme') || 'auto');
  const [notifies, setNotifies] = useState(() => load('notify') === 'on');
  const choose = (name) => { setTheme(name); update(name); };
  const toggle = async (event) => {
    const isOn = event.target.checked;
    if (isOn && (!('Notification' in globalThis) || await Notification.requestPermission() !== 'granted')) {
      event.target.checked = false;
      toast('The browser does not allow notifications for this page.', 'warn');
      return;
    }
    save('notify', isOn ? 'on' : '');
    setNotifies(isOn);
  };
  const forget = async () => {
    if (await confirm('Forget this pairing?', 'This browser needs a new code from odin pair to come back.', 'Forget')) app.forget();
  };
  return html`<${Dialog} title="Settings" close=${close} size="narrow"><div class="stack">
    <fieldset><legend>Theme</legend>${Object.entries(THEMES).map(([name, words]) => html`<label class="option" key=${name}>
      <input type="radio" name="theme" checked=${theme === name} onChange=${() => choose(name)} />${words}</label>`)}</fieldset>
    <label class="option"><input type="checkbox" checked=${notifies} onChange=${toggle} /><span>Notify me<span class="detail">while the page is open but hidden: when Odin asks something, and when it is done</span></span></label>
    <p class="dim"><span>${app.me.name ? `Paired as ${app.me.name}` : ''}</span>, ${{ view: 'may watch', prompt: 'may prompt', approve: 'may prompt and approve' }[app.me.right] ?? ''}${app.me.version ? ` · Odin ${app.me.version}` : ''}</p>
    <div class="buttons"><button onClick=${forget}>Forget this pairing</button></div>
  </div><//>`;
}

function nextAgent(screen) {
  const ids = ['', ...(screen.state?.agents ?? []).map(({ id }) => id)];
  screen.go(screen.session.id, ids[(ids.indexOf(screen.session.agent) + 1) % ids.length]);
}

const run = (line) => (screen) => screen.run(line);
const onTranscript = (act, by) => ({ transcript }) => transcript.current?.[act](by);
const move = onTranscript('look');

// Keys, what they do, and what the help says of them; nothing if it says that elsewhere.
const SESSION_KEYS = [
  ['F1', run('/help')],
  ['F2', ({ session }) => { session.mode = nextMode(session.mode); }],
  ['Alt+M', ({ session }) => { session.mode = nextMode(session.mode); }],
  ['Alt+R', run('/role')],
  ['Alt+A', nextAgent, 'next agent'],
  ['Ctrl+P', run('/model'), 'models'],
  ['Alt+T', run('/effort'), 'reasoning effort'],
  ['Ctrl+Y', run('/permissions'), 'permission mode'],
  ['Ctrl+B', (screen) => screen.act({ type: 'MoveToBackground', agent: screen.session.agent }, 'The command goes on in the background.'), 'running command to the background'],
  ['Ctrl+G', run('/diagnostics'), 'warnings and diagnostics'],
  ['Ctrl+O', run('/mcp'), 'MCP servers'],
  ['Alt+C', run('/contents'), 'prompts of this conversation'],
  ['Alt+Q', run('/queue'), 'queue: e edit, d drop, s steer, m mode'],
  ['F4', (screen) => screen.togglePanel(), 'side panel'],
  ['F8', run('/errors'), 'errors'],
  ['F9', () => dispatchEvent(new Event('odin-todos')), 'tasks'],
  ['Ctrl+Home', onTranscript('toTop'), 'to the top'],
  ['Ctrl+End', onTranscript('toEnd'), 'to the end'],
  ['PageUp', onTranscript('page', -1), 'scroll up'],
  ['PageDown', onTranscript('page', 1), 'scroll down'],
  ['Alt+ArrowUp', move, 'move between the cards'],
  ['Ctrl+ArrowUp', move],
  ['Escape', (screen) => (screen.state?.executing && screen.can('prompt') ? screen.stop() : false)],
];
const ACTIONS = Object.fromEntries(SESSION_KEYS.map(([name, action]) => [name.toLowerCase(), action]));

export function handleKey(screen, event) {
  const { target, key, code, altKey, isComposing, defaultPrevented } = event;
  if (isComposing || defaultPrevented) return;
  const isTyping = target.closest?.('input, textarea, select');
  const isCtrl = event.ctrlKey || event.metaKey;
  // With Alt, a Mac types other characters.
  const word = altKey && /^Key[A-Z]$/.test(code) ? code[3] : key;
  const name = `${isCtrl ? 'ctrl+' : ''}${altKey ? 'alt+' : ''}${event.shiftKey && key.length > 1 ? 'shift+' : ''}${word}`.toLowerCase();
  const action = ACTIONS[key === '?' && !isTyping ? 'f1' : name];
  if (!action && !isTyping && !isCtrl && !altKey && /^\S$/.test(key) && !target.closest?.('button, a, [role=region], dialog')) screen.write();
  if (!action || (name === 'ctrl+y' && isTyping && target.value)) return; // there, it is the browser's redo
  if (action(screen) !== false) event.preventDefault();
}

export const KEY_LIST = [
  ['In the prompt', [['Enter', 'send; while Odin works, queue'], ['Ctrl+S, Ctrl+Enter', 'steer the running turn'], ['Shift+Enter, Alt+Enter, Ctrl+J', 'line break'], ['Up, Down', 'history; Up edits the newest queued prompt'],
    ['Ctrl+R', 'search the history'], ['Tab, Enter', 'insert a suggestion'], ['F2, Alt+M', 'ask, plan or edit mode'], ['Alt+R', 'role'], ['Esc', 'stop; twice in an empty prompt: rewind']]],
  ['Everywhere', [['F1, ?', 'these keys'], ...SESSION_KEYS.flatMap(([name, , about]) => (about ? [[name.replace('Arrow', ''), about]] : []))]],
  ['On a card', [['j, k', 'next, previous card'], ['g, G', 'first, last card'], ['o, Enter, Space', 'fold or unfold'], ['O', 'fold or unfold all'], ['/, n, N', 'search; next, previous match'], ['y', 'copy'], ['a', 'transcript of the agent'], ['e', 'edit this prompt in a copy'], ['i, Esc', 'back to the prompt']]],
];
