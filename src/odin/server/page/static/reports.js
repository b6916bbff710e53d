// Sheets that are opened on request: reports, changes, going back, processes, agents, keys.

import { Fold, html, join, oneLine, plural, randomId, typed, useEffect, useLoaded, useRef, useState, when } from './base.js';
import { KEY_LIST, runOnServer } from './commands.js';
import { get, post } from './connection.js';
import { askText, Dialog, Empty, openDialog, pick, pickAction, toast, toastError, Waiting } from './dialogs.js';
import { Counts, Diff } from './diff.js';

const USAGE = [['this session', '/usage'], ['models', '/stats models'], ['agents', '/stats agents'], ['days', '/stats dates'], ['project', '/stats project']];
const TABS = { '/usage': USAGE, '/stats': USAGE };

// What a slash command says. `actions` are [label, line]; what `isLive` is read again and again.
export const showText = (screen, line, said) => openDialog(Report, { screen, line, said });
export const showChanges = (screen, path) => openDialog(Changes, { screen, path });
export const showHelp = (screen) => openDialog(Help, { screen });

function Report({ screen, line, title = /^\/\w+$/.test(line) ? line[1].toUpperCase() + line.slice(2) : line, said, actions = [], isLive, close }) {
  const [shown, setShown] = useState(line);
  const [text, error, again] = useLoaded(async () => (said && shown === line ? said : (await runOnServer(screen, shown)).text.trim()), [shown], isLive && 1000);
  const output = useRef(null);
  useEffect(() => {
    const node = isLive && output.current?.parentElement;
    if (node && node.scrollHeight - node.scrollTop - node.clientHeight < 200) node.scrollTop = node.scrollHeight;
  }, [text]);
  const act = (command) => runOnServer(screen, command).then(({ text: words }) => { toast(words.trim()); again(); }, toastError);
  const tabs = TABS[line] ?? [];
  return html`<${Dialog} title=${title} close=${close} size="wide" actions=${actions.length > 0 && actions.map(([words, command]) => html`<button onClick=${() => act(command)}>${words}</button>`)}>
    ${tabs.length > 0 && html`<p class="pairs">${tabs.map(([words, one]) => html`<button key=${one} class="chip" aria-pressed=${one === shown} onClick=${() => setShown(one)}>${words}</button>`)}</p>`}
    ${text === undefined ? html`<${Waiting} error=${error} />` : html`<pre class="report" ref=${output} tabindex="0" role=${isLive ? 'log' : 'region'} aria-label=${shown}>${
      text.split(/(\bhttps?:\/\/[^\s,]+)/).map((part, at) => (at % 2 ? html`<a href=${part} target="_blank" rel="noopener noreferrer">${part}</a>` : part))}</pre>`}<//>`;
}

function Changes({ screen, path, close }) {
  const [files, error] = useLoaded(() => get(`${screen.session.path}/changes`), []);
  const known = (screen.state.files ?? []).map((file) => file.path);
  const isWanted = (file) => path && (`/${path}`.endsWith(`/${file.path}`) || `/${file.path}`.endsWith(`/${path}`));
  const sum = (name) => files.reduce((total, file) => total + (file[name] ?? 0), 0);
  return html`<${Dialog} title="Changed files" close=${close} size="wide">
    ${!files ? html`<${Waiting} error=${error} />` : !files.length ? html`<${Empty}>No uncommitted changes.<//>` : html`
      <p class="dim">${plural(files.length, 'file')} <${Counts} added=${sum('added')} removed=${sum('removed')} /></p>
      ${files.map((file) => html`<${ChangedFile} key=${file.path} file=${file} isOdin=${known.includes(file.path)} isOpen=${files.length === 1 || isWanted(file)} />`)}`}
  <//>`;
}

function ChangedFile({ file, isOpen, isOdin }) {
  const [isShown, setShown] = useState(isOpen);
  const node = useRef(null);
  useEffect(() => { if (isOpen) node.current.scrollIntoView({ block: 'nearest' }); }, []);
  return html`<section ref=${node} class="changed-file"><${Fold} isFolded=${!isShown} toggle=${() => setShown(!isShown)}><span class="what"><span class="path">${file.path}</span> <${Counts} ...${file} /></span>
      <span class="status">${join(file.status, isOdin && 'by Odin')}</span><//>
    ${isShown ? file.diff ? html`<${Diff} text=${file.diff} />` : html`<p class="dim">No text to show.</p>` : null}</section>`;
}

export async function rewind(screen) {
  const load = () => get(`${screen.session.path}/snapshot`).then(({ messages }) => [
    ...messages.filter(({ source }) => source !== 'mail').toReversed().map((turn) => ({
      label: oneLine(turn.body, 200) || '(continued)', detail: join(turn.started && when(turn.started), turn.files && plural(turn.files, 'changed file')), value: turn,
    })),
    { label: 'Redo the last rewind', value: 'redo' },
  ]);
  const turn = await pick('Rewind to before a prompt', load);
  if (turn === 'redo') redo(screen);
  else if (turn) openDialog(RewindStep, { screen, turn });
}

export async function redo(screen) {
  if (!await screen.act({ type: 'Redo' }, 'The rewind was reversed.')) toast('There is nothing to redo.');
}

function RewindStep({ screen, turn, close }) {
  const { session } = screen;
  const [isForced, setForced] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [plan, error] = useLoaded(() => post(`${session.path}/rewind`, { type: 'Rewind', turn: turn.id, force: isForced }), [isForced]);
  const { changes = [], kept = [] } = plan ?? {};
  const go = async (files, chat) => {
    setBusy(true);
    const done = await screen.act({ type: 'Rewind', turn: turn.id, files, chat, force: isForced });
    if (done && chat) screen.composer.current?.setText(turn.body);
    close();
  };
  const isThere = (state) => Boolean(state) && state.kind !== 'absent';
  const list = (rows) => html`<ul class="plain">${rows.map(([path, words]) => html`<li key=${path}><span class="path">${path}</span> <span class="dim">${words}</span></li>`)}</ul>`;
  const button = (words, files, chat) => html`<button class=${files && chat ? 'primary' : ''} disabled=${isBusy} onClick=${() => go(files, chat)}>${words}</button>`;
  return html`<${Dialog} title="Rewind" close=${close} actions=${html`<button onClick=${() => { close(); rewind(screen); }}>Back</button>
      ${button('Files only', true, false)}${button('Conversation only', false, true)}${button('Files and conversation', true, true)}`}>
    <p>To before this prompt:</p><blockquote>${oneLine(turn.body, 400)}</blockquote>
    ${!plan ? html`<${Waiting} error=${error} />` : html`
      ${changes.length ? list(changes.map(({ before, after }) => [after?.path || before?.path, !isThere(after) ? 'will be removed' : !isThere(before) ? 'will be restored' : 'will be changed back'])) : html`<p class="dim">No files would change.</p>`}
      ${kept.length > 0 && html`<p class="warn">Left alone:</p>${list(kept.map(({ path, reason }) => [path, reason]))}`}
      ${((kept.length > 0 || isForced) && screen.can('approve')) && html`<label class="option"><input type="checkbox" checked=${isForced} onChange=${(event) => setForced(event.target.checked)} />Also overwrite changes made outside Odin; their content is saved first</label>`}`}
  <//>`;
}

export async function showProcesses(screen, id) {
  const { processes } = screen.state;
  const chosen = id || await pick('Background processes', processes.map((one) => ({ label: one.id, detail: join(one.description || one.command, one.text), value: one.id })), { empty: 'No background processes.' });
  if (!chosen) return;
  const line = `/ps ${chosen}`;
  const isRunning = processes.some(({ id: one, status }) => one === chosen && status === 'running');
  openDialog(Report, {
    screen, line, title: chosen, isLive: true,
    actions: isRunning && screen.can('prompt') ? [['Stop', `${line} stop`]] : [],
  });
}

export async function showAgents(screen) {
  const { session, state } = screen;
  const chosen = await pick('Agents', state.agents.map((one) => ({
    label: one.id, detail: join(one.text, oneLine(one.description, 120), one.type, one.model, one.unread && `${one.unread} unread`, oneLine(one.outcome, 200)), value: one, isCurrent: one.id === session.agent,
  })), { empty: 'No sub-agents in this session.' });
  if (!chosen) return;
  const { id: agent, is_working: isWorking, task_id: task } = chosen;
  const write = async () => {
    const text = await askText(`Write to ${agent}`, 'Prompt', '', 'Send');
    if (text) await screen.act({ type: 'Prompt', id: randomId(), text, mode: session.mode, agent, ...(isWorking && { delivery: 'steer' }) }, 'Sent.');
  };
  pickAction(agent, [
    ['Open', () => screen.go(session.id, agent)],
    ...(screen.can('prompt') ? [
      [isWorking ? 'Steer' : 'Write', write],
      ...(isWorking ? [['Stop', () => screen.act({ type: 'Interrupt', agent }, `${agent} was stopped.`)]] : []),
      ...(task && !['completed', 'failed', 'cancelled'].includes(chosen.state) ? [['Cancel the task', () => screen.act({ type: 'CancelTask', task_id: task }, 'The task was cancelled.')]] : []),
      ['Close', () => screen.act({ type: 'CloseAgent', agent }, `${agent} was closed.`)],
    ] : []),
  ]);
}

export async function showErrors(screen) {
  const errors = screen.session.blocks.filter(({ tone }) => tone === 'bad').slice(-80).toReversed();
  const key = await pick('Errors', errors.map((block) => ({
    label: oneLine(block.line || `${block.title} ${block.about}`, 300), detail: oneLine(block.remark || block.result || '', 200), value: block.key,
  })), { empty: 'No errors.' });
  if (key) screen.transcript.current?.show(key);
}

function Help({ screen, close }) {
  const [words, setWords] = useState('');
  const [commands = []] = useLoaded(() => get(`${screen.session.path}/complete`, { line: '/', column: '1' }).then(({ items }) => items), []);
  const use = (one) => { close(); screen.composer.current?.setText(`${one.insert.trim()} `); };
  const sections = [...KEY_LIST, ['Commands', commands.map((one) => [one.label, one.help, one])]];
  const fits = (row) => `${row[0]} ${row[1]}`.toLowerCase().includes(words.toLowerCase());
  return html`<${Dialog} title="Keys and commands" close=${close} size="wide">
    <input type="search" class="filter" data-focus aria-label="Find a key or command" placeholder="Find a key or command" value=${words} onInput=${typed(setWords)} />
    ${sections.map(([title, rows]) => [title, rows.filter(fits)]).filter(([, rows]) => rows.length).map(([title, rows]) => html`<section key=${title}><h3>${title}</h3>
      <dl class="key-list">${rows.map(([name, about, command]) => html`<div key=${name}><dt>${command ? html`<button class="small mono" onClick=${() => use(command)}>${name}</button>`
        : name.split(', ').map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${about}</dd></div>`)}</dl></section>`)}
  <//>`;
}
