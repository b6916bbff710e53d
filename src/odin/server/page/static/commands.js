// Slash commands that the page answers itself, the keys of a session, and what is chosen from a list.

import { count, html, join, load, MODES, randomId, save, useEffect, useState } from './base.js';
import { get, post, submit } from './connection.js';
import { confirm, Dialog, openDialog, pick, pickAction, Picker, toast, toastError } from './dialogs.js';
import { copy, remove, rename } from './sessions.js';

const report = (name, props) => import('./reports.js').then((found) => openDialog(found[name], props), toastError);

const NATIVE = {
  resume: () => { location.hash = '#/'; },
  sessions: () => { location.hash = '#/'; },
  exit: () => { location.hash = '#/'; },
  quit: () => { location.hash = '#/'; },
  new: (screen) => startNew(screen),
  diff: (screen, rest) => report('Changes', { screen, path: rest }),
  context: (screen) => report('ContextSheet', { screen }),
  usage: (screen) => report('UsageSheet', { screen }),
  stats: (screen) => report('UsageSheet', { screen }),
  status: (screen) => report('StatusSheet', { screen }),
  help: (screen) => report('Help', { screen }),
  keys: (screen) => report('Help', { screen }),
  errors: (screen) => report('Errors', { screen }),
  ps: (screen, rest) => report('Processes', { screen, id: rest }),
  agents: (screen) => report('AgentList', { screen }),
  contents: (screen) => showContents(screen),
  queue: (screen, rest) => (rest ? false : focusQueue(screen)),
  rewind: (screen, rest) => (rest ? false : report('RewindSheet', { screen })),
  undo: (screen, rest) => (rest ? false : report('RewindSheet', { screen })),
  redo: (screen, rest) => (rest ? false : redo(screen)),
  export: (screen, rest) => (rest ? false : screen.export()),
  copy: (screen) => copyAnswer(screen),
  theme: (screen, rest) => chooseTheme(rest),
  settings: (screen) => screen.openSettings(),
  menu: (screen) => showMenu(screen),
  model: (screen, rest) => (rest ? false : showModels(screen)),
  models: (screen, rest) => (rest ? false : showModels(screen)),
  effort: (screen, rest) => (rest ? false : showEffort(screen)),
  role: (screen, rest) => (rest ? false : showRoles(screen)),
  permissions: (screen, rest) => (rest ? false : showPermissions(screen)),
  ask: (screen, rest) => useMode(screen, 'ask_mode', rest),
  plan: (screen, rest) => useMode(screen, 'plan_mode', rest),
  edit: (screen, rest) => useMode(screen, 'edit_mode', rest),
  focus: (screen, rest) => screen.go(screen.session.id, rest === 'main' ? '' : rest),
  steer: (screen, rest) => (rest ? prompt(screen, rest, { delivery: 'steer' }) : false),
  fork: (screen, rest) => fork(screen, rest),
};

// Returns true if the line is dealt with; a custom command is a prompt.
export async function runLine(screen, line) {
  const [, name, rest] = /^\/(\S*)\s*([\s\S]*)$/.exec(line) ?? [];
  const native = NATIVE[name];
  if (native) {
    const result = await native(screen, rest.trim());
    if (result !== false) return true;
  }
  const { session } = screen;
  try {
    if (!native && await isCustom(session, name)) return false;
    const answer = await post(`${session.path}/command`, { line, agent: session.agent, mode: session.mode });
    await follow(screen, answer, line);
  } catch (error) {
    toastError(error);
  }
  return true;
}

async function isCustom(session, name) {
  const commands = await get(`${session.path}/commands`);
  return commands.some((one) => [one.name, one.name.replaceAll('/', ':'), one.plugin ? `${one.plugin}:${one.name}` : one.name].includes(name));
}

// What a command answers with: text, another session, a draft, a prompt, a mode, an agent.
async function follow(screen, answer, line) {
  const { session } = screen;
  if (answer.mode && answer.mode !== session.mode) session.mode = answer.mode;
  const to = answer.session && answer.session !== session.id ? answer.session : '';
  if (answer.prompt) {
    await submit(to || session.id, { ...answer.prompt, type: 'Prompt' });
  }
  if (answer.draft) {
    if (to) save(`draft:${to}:`, answer.draft);
    else screen.composer.current?.setText(answer.draft);
  }
  const text = answer.text?.trim();
  if (text && text.length < 160 && !text.includes('\n')) toast(text);
  else if (text) report('TextSheet', { title: line, text });
  if (to) screen.go(to);
  else if (answer.agent !== undefined && answer.agent !== session.agent) screen.go(session.id, answer.agent);
}

async function prompt(screen, text, more = {}) {
  const { session } = screen;
  await session.submit({ type: 'Prompt', id: randomId(), text, mode: session.mode, agent: session.agent, ...more }).catch(toastError);
}

async function useMode(screen, mode, rest) {
  screen.session.mode = mode;
  if (rest) await prompt(screen, rest, { mode });
}

// --- sessions ---

async function startNew(screen) {
  try {
    const { session } = await post(`${screen.session.path}/new`);
    screen.go(session);
  } catch (error) {
    toastError(error);
  }
}

async function fork(screen, turn) {
  try {
    const { session, draft } = await post(`${screen.session.path}/fork`, turn ? { turn } : {});
    if (draft) save(`draft:${session}:`, draft);
    screen.go(session);
    toast('This is a copy of the session.');
  } catch (error) {
    toastError(error);
  }
}

async function redo(screen) {
  const done = await screen.act({ type: 'Redo' }, 'The rewind was reversed.');
  if (!done) toast('There is nothing to redo.');
}

function copyAnswer({ session }) {
  const answer = session.blocks.findLast(({ kind }) => kind === 'answer');
  if (!answer) toast('There is no answer yet.');
  else navigator.clipboard?.writeText(answer.text).then(() => toast('The last answer was copied.'), toastError);
}

function focusQueue({ state }) {
  if (state?.queue?.length) dispatchEvent(new Event('odin-queue'));
  else toast('The queue is empty.');
}

async function showContents(screen) {
  const prompts = screen.session.blocks.filter(({ kind, is_mail: isMail }) => kind === 'prompt' && !isMail);
  const key = await pick('Prompts of this conversation', prompts.map((one) => ({ label: one.text.slice(0, 200) || '(continued)', value: one.key })), { empty: 'No prompts yet.' });
  if (key) screen.transcript.current?.show(key);
}

function showMenu(screen) {
  const may = (right, ...rows) => (screen.can(right) ? rows : []);
  const { state, session } = screen;
  const summary = { id: session.id, title: state?.title };
  pickAction('Session', [
    ...may('prompt', ['Rewind or redo', () => screen.run('/rewind'), 'Esc Esc']),
    ['Changed files', () => screen.run('/diff')],
    ['Prompts', () => screen.run('/contents')],
    ['Search', () => screen.transcript.current?.search(), '/'],
    ['Context', () => screen.run('/context')],
    ['Usage', () => screen.run('/usage')],
    ['Background processes', () => screen.run('/ps')],
    ['Agents', () => screen.run('/agents')],
    ...may('prompt', ['Compact the conversation', () => screen.act({ type: 'Compact', agent: session.agent }, 'The conversation is being summarized.')]),
    ...may('prompt', ['Rename', () => rename(summary)], ['Continue in a copy', () => copy(summary)]),
    ['Export', screen.export],
    ...may('approve', ['Delete', () => remove(summary, () => { location.hash = '#/'; })]),
    ['Status', () => screen.run('/status')],
    ['Keys and commands', () => screen.run('/help'), '?'],
    ['Settings', screen.openSettings],
  ]);
}

// --- choices ---

async function showModels(screen) {
  const { session, state } = screen;
  const choose = (servers) => get(`${session.path}/models`, { servers }).then((models) => models.map((one) => ({
    label: one.model, isCurrent: one.model === state.model, value: one.model,
    detail: join(one.context && `${count(one.context)} tokens`, one.price_input !== null && one.price_input !== undefined && `$${one.price_input} in, $${one.price_output} out`, one.note, one.pool?.join(', ')),
  })));
  try {
    const model = await openDialog(LoadedPicker, { title: 'Models', load: () => choose('configured'), own: (words) => `Use ${words}`, empty: 'No models found.' });
    if (model) await screen.act({ type: 'SetModel', model, check: true, agent: session.agent }, `The next request goes to ${model}.`);
  } catch (error) {
    toastError(error);
  }
}

function LoadedPicker({ load: read, ...props }) {
  const [items, setItems] = useState();
  useEffect(() => { read().then(setItems, (error) => { toastError(error); setItems([]); }); }, []);
  return html`<${Picker} ...${props} items=${items} />`;
}

const EFFORTS = ['', 'low', 'medium', 'high'];

async function showEffort(screen) {
  const { session, state } = screen;
  const effort = await pick('Reasoning effort', EFFORTS.map((value) => ({ label: value || 'usual', value, isCurrent: value === (state.effort ?? '') })), { isFiltered: false });
  if (effort !== undefined) await screen.act({ type: 'SetEffort', effort, agent: session.agent });
}

async function showRoles(screen) {
  if (!screen.can('approve')) return toast('Changing the role needs the right to approve.');
  const role = await openDialog(LoadedPicker, {
    title: 'Role', empty: 'No roles.',
    load: async () => (await get(`${screen.session.path}/agents`)).filter(({ use }) => use !== 'subagent').map((one) => ({ label: one.name, detail: one.description, hint: one.model, value: one.name, isCurrent: one.name === screen.state.role })),
  });
  if (role) await screen.act({ type: 'SetRole', role });
  return true;
}

const PERMISSION_MODES = [
  ['default', 'Odin asks before it changes files or runs commands'],
  ['acceptEdits', 'Edits in the project are not asked about'],
  ['auto', 'Sandboxed commands and edits in the project are not asked about'],
  ['dontAsk', 'What would be asked about is denied'],
  ['bypassPermissions', 'Nothing is asked about, but for deny rules and destructive commands'],
];

async function showPermissions(screen) {
  if (!screen.can('approve')) return toast('Changing the permission mode needs the right to approve.');
  const mode = await pick('Permission mode', PERMISSION_MODES.map(([value, detail]) => ({ label: value, detail, value, isCurrent: value === (screen.state.permission_mode || 'default') })), { isFiltered: false });
  if (mode === 'bypassPermissions' && !await confirm('Stop asking?', 'Odin will run commands and change files without asking you.', 'Do not ask')) return true;
  if (mode) await screen.act({ type: 'SetPermissionMode', mode });
  return true;
}

// --- settings of this browser ---

const THEMES = { auto: 'as the system', light: 'light', dark: 'dark' };

function setTheme(theme) {
  save('theme', theme === 'auto' ? '' : theme);
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

function chooseTheme(rest) {
  if (rest in THEMES) setTheme(rest);
  else openDialog(Settings, {});
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
    ${app ? html`<p class="dim"><span dir="auto">${app.me.name ? `Paired as ${app.me.name}` : ''}</span>, ${{ view: 'may watch', prompt: 'may prompt', approve: 'may prompt and approve' }[app.me.right] ?? ''}${app.me.version ? ` · Odin ${app.me.version}` : ''}</p>
      <div class="buttons"><button onClick=${forget}>Forget this pairing</button></div>` : null}
  </div><//>`;
}

// --- keys ---

const MODE_NAMES = Object.keys(MODES);

function nextAgent(screen) {
  const ids = ['', ...(screen.state?.agents ?? []).map(({ id }) => id)];
  screen.go(screen.session.id, ids[(ids.indexOf(screen.session.agent) + 1) % ids.length]);
}

const KEYS = {
  F1: (screen) => screen.run('/help'),
  F2: ({ session }) => { session.mode = MODE_NAMES[(MODE_NAMES.indexOf(session.mode) + 1) % 3]; },
  F4: (screen) => screen.togglePanel(),
  F8: (screen) => screen.run('/errors'),
  F9: () => dispatchEvent(new Event('odin-todos')),
  'alt+r': (screen) => screen.run('/role'),
  'alt+t': (screen) => screen.run('/effort'),
  'alt+a': nextAgent,
  'alt+q': (screen) => screen.run('/queue'),
  'alt+c': (screen) => screen.run('/contents'),
  'ctrl+p': (screen) => screen.run('/model'),
  'ctrl+y': (screen) => screen.run('/permissions'),
  'ctrl+g': (screen) => screen.run('/status'),
  'ctrl+o': (screen) => screen.run('/status'),
  'ctrl+b': (screen) => screen.act({ type: 'MoveToBackground', agent: screen.session.agent }, 'The command goes on in the background.'),
  'alt+ArrowUp': (screen) => screen.transcript.current?.look(),
  'ctrl+ArrowUp': (screen) => screen.transcript.current?.look(),
  'ctrl+Home': (screen) => screen.transcript.current?.toTop(),
  'ctrl+End': (screen) => screen.transcript.current?.toEnd(),
  PageUp: (screen) => screen.transcript.current?.page(-1),
  PageDown: (screen) => screen.transcript.current?.page(1),
  Escape: (screen) => (screen.state?.executing && screen.can('prompt') ? screen.stop() : false),
};
KEYS['alt+m'] = KEYS.F2;

export function handleKey(screen, event) {
  const isTyping = event.target.closest?.('input, textarea, select');
  if (event.isComposing || event.defaultPrevented) return;
  const isCtrl = event.ctrlKey || event.metaKey;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const name = `${isCtrl ? 'ctrl+' : ''}${event.altKey ? 'alt+' : ''}${event.shiftKey && key.length > 1 ? 'shift+' : ''}${key}`;
  // With Alt, a Mac types other characters.
  const byPlace = event.altKey && /^Key[A-Z]$/.test(event.code) ? `alt+${event.code[3].toLowerCase()}` : '';
  let action = KEYS[name] ?? KEYS[byPlace];
  if (!action && event.key === '?' && !isTyping) action = KEYS.F1;
  if (!action && !isTyping && !isCtrl && !event.altKey && event.key.length === 1 && /\S/.test(event.key) && !event.target.closest?.('button, a, [role=region], dialog')) screen.write();
  if (!action || (name === 'ctrl+y' && isTyping && document.activeElement.value)) return;
  if (action(screen, event) !== false) event.preventDefault();
}

export const KEY_LIST = [
  ['In the prompt', [['Enter', 'send; while Odin works, queue'], ['Ctrl+S, Ctrl+Enter', 'send into the running turn'], ['Shift+Enter, Alt+Enter, Ctrl+J', 'line break'], ['Up, Down', 'history of this project; Up edits the newest queued prompt'],
    ['Ctrl+R', 'search the history'], ['Tab, Enter', 'in a completion list: insert'], ['F2, Alt+M', 'ask, plan or edit mode'], ['Alt+R', 'role'], ['Esc', 'stop the work; twice in an empty prompt: rewind']]],
  ['Everywhere', [['F1, ?', 'these keys'], ['Alt+A', 'next agent'], ['Ctrl+P', 'models'], ['Alt+T', 'reasoning effort'], ['Ctrl+Y', 'permission mode'], ['Ctrl+B', 'send the running command to the background'],
    ['Ctrl+G', 'warnings and status'], ['Alt+C', 'prompts of this conversation'], ['Alt+Q', 'queue: e edit, d drop, s steer, m mode, w send'], ['F4', 'side panel'], ['F8', 'errors'], ['F9', 'tasks'],
    ['PgUp, PgDn, Ctrl+Home, Ctrl+End', 'scroll'], ['Alt+Up, Ctrl+Up', 'move between the cards']]],
  ['On a card', [['j, k', 'next, previous card'], ['g, G', 'first, last card'], ['o, Enter, Space', 'fold or unfold'], ['O', 'fold or unfold all'], ['/, n, N', 'search; next, previous match'], ['y', 'copy'], ['a', 'transcript of the agent'], ['e', 'edit this prompt in a copy of the session'], ['i, Esc', 'back to the prompt']]],
  ['When Odin asks', [['y, n', 'allow once; deny'], ['s, p, u', 'allow and save a rule: session, project, everywhere'], ['a', 'allow all such calls of this session'], ['r', 'deny with a reason'], ['d', 'deny and save a rule'], ['w', 'allow with a note'], ['e', 'edit the call first'], ['v', 'show all'], ['m', 'all answers'], ['Esc', 'deny and stop the work']]],
];
