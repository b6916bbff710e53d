// Sheets that are opened on request: what changed, what it cost, what runs, and going back.

import { count, html, join, oneLine, plural, seconds, short, usd, useEffect, useLoaded, useRef, useState, when } from './base.js';
import { KEY_LIST } from './commands.js';
import { get, post } from './connection.js';
import { askText, Dialog, Empty, toast, toastError, Waiting } from './dialogs.js';
import { Counts, Diff } from './diff.js';
import { agentState } from './panels.js';

export function TextSheet({ title, text, close }) {
  const copy = () => navigator.clipboard?.writeText(text).then(() => toast('Copied.'));
  return html`<${Dialog} title=${title} close=${close} actions=${html`<div class="buttons"><button onClick=${copy}>Copy</button></div>`}>
    <pre class="report" tabindex="0">${text}</pre><//>`;
}

export function Changes({ screen, path, close }) {
  const [files, error] = useLoaded(() => get(`${screen.session.path}/changes`), []);
  const known = new Map((screen.state.files ?? []).map((file) => [file.path, file]));
  const isWanted = (file) => path && (file.path === path || path.endsWith(`/${file.path}`) || file.path.endsWith(`/${path}`));
  const sum = (name) => (files ?? []).reduce((total, file) => total + (file[name] ?? 0), 0);
  return html`<${Dialog} title="Changed files" close=${close} size="wide">
    ${!files ? (error && known.size ? html`<p class="dim">${error.message}</p><ul class="plain">${[...known.values()].map((file) => html`<li key=${file.path}><span class="path" dir="auto">${file.path}</span> <${Counts} ...${file} /></li>`)}</ul>`
      : html`<${Waiting} error=${error} />`) : !files.length ? html`<${Empty}>No uncommitted changes.<//>` : html`
      <p class="dim">${plural(files.length, 'file')} <${Counts} added=${sum('added')} removed=${sum('removed')} /></p>
      ${files.map((file) => html`<${ChangedFile} key=${file.path} file=${file} isOpen=${isWanted(file) || files.length === 1} isOdin=${known.has(file.path)} />`)}`}
  <//>`;
}

function ChangedFile({ file, isOpen, isOdin }) {
  const [isShown, setShown] = useState(isOpen);
  const node = useRef(null);
  useEffect(() => { if (isOpen) node.current.scrollIntoView({ block: 'nearest' }); }, []);
  return html`<section ref=${node} class="changed-file"><button class="fold" aria-expanded=${isShown} onClick=${() => setShown(!isShown)}>
      <span class="mark" aria-hidden="true">${isShown ? '▾' : '▸'}</span><span class="what"><span class="path" dir="auto">${file.path}</span> <${Counts} ...${file} /></span>
      <span class="status">${join(file.status, isOdin && 'by Odin')}</span></button>
    ${isShown ? file.diff ? html`<${Diff} text=${file.diff} />` : html`<p class="dim">No text to show.</p>` : null}</section>`;
}

// --- going back ---

export function RewindSheet({ screen, close }) {
  const { session } = screen;
  const [shot, error] = useLoaded(() => get(`${session.path}/snapshot`), []);
  const [turn, setTurn] = useState(null);
  const [filter, setFilter] = useState('');
  if (turn) return html`<${RewindStep} ...${{ screen, turn, close }} back=${() => setTurn(null)} />`;
  const turns = (shot?.messages ?? []).filter(({ source }) => source !== 'mail').toReversed().filter(({ body }) => body.toLowerCase().includes(filter.toLowerCase()));
  const redo = async () => {
    if (await screen.act({ type: 'Redo' }, 'The rewind was reversed.')) close();
    else toast('There is nothing to redo.');
  };
  return html`<${Dialog} title="Rewind to before a prompt" close=${close} actions=${html`<div class="buttons"><button onClick=${redo}>Redo the last rewind</button></div>`}>
    ${!shot ? html`<${Waiting} error=${error} />` : html`
      <input type="search" class="filter" data-focus aria-label="Filter the prompts" placeholder="Type to filter" value=${filter} dir="auto" onInput=${(event) => setFilter(event.target.value)} />
      ${turns.length ? html`<ul class="rows-list">${turns.map((one) => html`<li key=${one.id}><button class="row" onClick=${() => setTurn(one)}>
        <span class="what"><span dir="auto">${oneLine(one.body, 200) || '(continued)'}</span><span class="detail">${join(one.started && when(one.started), one.files && plural(one.files, 'changed file'))}</span></span></button></li>`)}</ul>`
        : html`<${Empty}>No prompts to go back to.<//>`}`}
  <//>`;
}

function RewindStep({ screen, turn, back, close }) {
  const { session } = screen;
  const [isForced, setForced] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [plan, error] = useLoaded(() => post(`${session.path}/rewind`, { type: 'Rewind', turn: turn.id, force: isForced }), [isForced]);
  const changes = plan?.changes ?? [];
  const kept = plan?.kept ?? [];
  const rewind = async (files, chat) => {
    setBusy(true);
    try {
      const { done } = await session.submit({ type: 'Rewind', turn: turn.id, files, chat, force: isForced });
      if (!done) toast('There was nothing to rewind.');
      else if (chat) screen.composer.current?.setText(turn.body);
      close();
    } catch (problem) {
      toastError(problem);
      setBusy(false);
    }
  };
  const describeChange = ({ before, after }) => {
    const path = after?.path || before?.path;
    return html`<li key=${path}><span class="path" dir="auto">${path}</span> <span class="dim">${!isThere(after) ? 'will be removed' : !isThere(before) ? 'will be restored' : 'will be changed back'}</span></li>`;
  };
  return html`<${Dialog} title="Rewind" close=${close} actions=${html`<div class="buttons">
      <button onClick=${back}>Back</button>
      <button disabled=${isBusy} onClick=${() => rewind(true, false)}>Files only</button>
      <button disabled=${isBusy} onClick=${() => rewind(false, true)}>Conversation only</button>
      <button class="primary" disabled=${isBusy} onClick=${() => rewind(true, true)}>Files and conversation</button></div>`}>
    <p>To before this prompt:</p><blockquote>${oneLine(turn.body, 400)}</blockquote>
    ${!plan ? html`<${Waiting} error=${error} />` : html`
      ${changes.length ? html`<ul class="plain">${changes.map(describeChange)}</ul>` : html`<p class="dim">No files would change.</p>`}
      ${kept.length ? html`<p class="warn">Left alone:</p><ul class="plain">${kept.map((one) => html`<li key=${one.path}><span class="path" dir="auto">${one.path}</span> <span class="dim" dir="auto">${one.reason}</span></li>`)}</ul>` : null}
      ${kept.length || isForced ? (screen.can('approve') ? html`<label class="option"><input type="checkbox" checked=${isForced} onChange=${(event) => setForced(event.target.checked)} />Also overwrite changes made outside Odin; their content is saved first</label>` : null) : null}`}
  <//>`;
}

const isThere = (state) => Boolean(state) && state.kind !== 'absent';

// --- what it costs ---

export function ContextSheet({ screen, close }) {
  const [found, error] = useLoaded(() => get(`${screen.session.path}/context`), []);
  const room = found && (found.budget || found.limit);
  const parts = (found?.parts ?? []).toSorted((a, b) => b.tokens - a.tokens);
  const most = Math.max(1, ...parts.map(({ tokens }) => tokens));
  return html`<${Dialog} title="Context" close=${close}>${!found ? html`<${Waiting} error=${error} />` : html`
    <p>${found.measured ? '' : 'about '}${count(found.used)}${room ? ` of ${count(room)}` : ''} tokens${room ? ` · ${Math.round((100 * found.used) / room)}%` : ''}</p>
    ${found.threshold ? html`<p class="dim">${found.compacting ? 'compacting' : `compacts at ${count(found.threshold)}`}</p>` : null}
    <table class="figures"><thead class="unseen"><tr><th>Source</th><th>Share</th><th>Tokens</th></tr></thead><tbody>${parts.map((part) => html`<tr key=${part.source}><th scope="row" dir="auto">${part.source}${part.count > 1 ? html` <span class="dim">× ${part.count}</span>` : null}</th>
      <td class="bar-cell"><span class="meter" ref=${(node) => node?.style.setProperty('--share', part.tokens / most)}></span></td><td class="figure">${count(part.tokens)}</td></tr>`)}</tbody></table>
    ${found.instructions?.length ? html`<h3>Instructions</h3><ul class="plain">${found.instructions.map((one) => html`<li key=${one.name}><span class="path" dir="auto">${one.name}</span> <span class="dim">${join(count(one.tokens), one.why)}</span></li>`)}</ul>` : null}`}
  <//>`;
}

export function UsageSheet({ screen, close }) {
  const [by, setBy] = useState('model');
  const [isProject, setProject] = useState(false);
  const [days, setDays] = useState(0);
  const [found, error] = useLoaded(() => get(`${screen.session.path}/usage`, { by, days: String(isProject ? days : 0), session: isProject ? '' : screen.session.id }), [by, isProject, days]);
  const tab = (value, chosen, set, words) => html`<button class="chip" aria-pressed=${value === chosen} onClick=${() => set(value)}>${words}</button>`;
  const row = (one, isTotal) => html`<tr class=${isTotal ? 'total' : ''}><th scope="row" dir="auto">${isTotal ? 'Total' : one.title || one.name || 'main'}</th><td class="figure">${count(one.calls)}</td><td class="figure">${short(one.input + one.cache_read + one.cache_write)}</td>
    <td class="figure">${short(one.output)}</td><td class="figure">${one.cache_hit_rate === null || one.cache_hit_rate === undefined ? '' : `${Math.round(one.cache_hit_rate * 100)}%`}</td><td class="figure">${one.unpriced_tokens && !one.cost_usd ? 'unpriced' : usd(one.cost_usd)}</td></tr>`;
  return html`<${Dialog} title="Usage" close=${close} size="wide">
    <p class="pairs" role="group" aria-label="Scope">${tab(false, isProject, setProject, 'session')}${tab(true, isProject, setProject, 'project')}</p>
    <p class="pairs" role="group" aria-label="By">${['model', 'agent', 'purpose', 'day'].map((one) => tab(one, by, setBy, `by ${one}`))}</p>
    ${isProject ? html`<p class="pairs" role="group" aria-label="Days">${[[1, 'today'], [7, '7 days'], [30, '30 days'], [0, 'all time']].map(([value, words]) => tab(value, days, setDays, words))}</p>` : null}
    ${!found ? html`<${Waiting} error=${error} />` : html`<div class="table" tabindex="0" role="region" aria-label="Usage"><table class="figures"><thead><tr><th scope="col">${by}</th><th scope="col">calls</th><th scope="col">input</th><th scope="col">output</th><th scope="col">cached</th><th scope="col">cost</th></tr></thead>
      <tbody>${found.rows.map((one) => row(one, false))}${row(found.total, true)}</tbody></table></div>`}
  <//>`;
}

// --- what runs ---

export function Processes({ screen, id, close }) {
  const [chosen, setChosen] = useState(id);
  const list = screen.session.state.processes ?? [];
  const [loaded, error, reload] = useLoaded(() => get(`${screen.session.path}/processes`), []);
  useEffect(() => screen.session.on('state', reload), []);
  const processes = loaded ?? list;
  const one = processes.find((process) => process.id === chosen);
  if (one) return html`<${ProcessSheet} ...${{ screen, process: one, close }} back=${() => setChosen('')} />`;
  return html`<${Dialog} title="Background processes" close=${close}>
    ${error && !processes.length ? html`<${Waiting} error=${error} />` : !processes.length ? html`<${Empty}>No background processes.<//>` : html`<ul class="rows-list">${processes.map((process) => html`<li key=${process.id}>
      <button class="row" onClick=${() => setChosen(process.id)}><span class="what"><b>${process.id}</b> <span dir="auto">${process.description || process.command}</span><span class="detail">${describeProcess(process)}</span></span></button></li>`)}</ul>`}
  <//>`;
}

const describeProcess = ({ status, code, seconds: took }) => join(`${status.replace('_', ' ')}${status === 'failed' ? ` with exit code ${code}` : ''}`, took > 0 && seconds(took));

function ProcessSheet({ screen, process, back, close }) {
  const [text, setText] = useState('');
  const output = useRef(null);
  const { id } = process;
  const isRunning = process.status === 'running';
  useEffect(() => {
    let after = 0;
    let isOpen = true;
    const read = async () => {
      try {
        const found = await get(`${screen.session.path}/process`, { id, after: String(after) });
        if (!isOpen) return;
        after = found.end ?? after;
        if (found.text) setText((now) => (now + found.text).slice(-200_000));
      } catch (error) {
        toastError(error);
        isOpen = false;
      }
    };
    read();
    const timer = setInterval(() => isOpen && isRunning && read(), 1000);
    return () => { isOpen = false; clearInterval(timer); };
  }, [id, isRunning]);
  useEffect(() => {
    const node = output.current;
    if (node && node.scrollHeight - node.scrollTop - node.clientHeight < 200) node.scrollTop = node.scrollHeight;
  }, [text]);
  const control = (action, port = 0) => screen.act({ type: 'ControlProcess', action, id, port });
  const urls = Object.entries(process.urls ?? {});
  return html`<${Dialog} title=${id} close=${close} size="wide" actions=${html`<div class="buttons"><button onClick=${back}>All processes</button>
      ${isRunning && screen.can('approve') ? html`<button onClick=${() => control('open')}>Open port</button>` : null}
      ${isRunning && screen.can('prompt') ? html`<button class="danger" onClick=${() => control('stop')}>Stop</button>` : null}</div>`}>
    <p class="mono">${process.command}</p><p class="dim">${describeProcess(process)}</p>
    ${urls.map(([port, url]) => html`<p key=${port}>port ${port}: ${/^https?:/.test(url) ? html`<a href=${url} target="_blank" rel="noopener noreferrer">${url}</a>` : url || 'not open'}</p>`)}
    <pre class="report output" ref=${output} tabindex="0" aria-label="Output" role="log">${text || '(no output yet)'}</pre>
  <//>`;
}

export function AgentList({ screen, close }) {
  const { session } = screen;
  const [, setRound] = useState(0);
  useEffect(() => session.on('state', () => setRound((round) => round + 1)), []);
  const agents = session.state.agents ?? [];
  const open = (id) => { close(); screen.go(session.id, id); };
  const act = (op, words) => screen.act(op, words);
  const steer = async (agent) => {
    const text = await askText(`Write to ${agent.id}`, 'Prompt', '', 'Send');
    if (text) await screen.act({ type: 'Prompt', id: `${agent.id}-${Date.now().toString(36)}`, text, mode: session.mode, agent: agent.id, ...(agent.is_working && { delivery: 'steer' }) }, 'Sent.');
  };
  return html`<${Dialog} title="Agents" close=${close}>${agents.length ? html`<ul class="rows-list">${agents.map((agent) => html`<li key=${agent.id} class="stacked">
    <button class="row" onClick=${() => open(agent.id)}><span class="what"><b>${agent.id}</b> <span dir="auto">${oneLine(agent.description || '', 120)}</span>
      <span class="detail" dir="auto">${join(agentState(agent), agent.type, agent.model, agent.unread && `${agent.unread} unread`)}</span>${agent.outcome ? html`<span class="detail" dir="auto">${oneLine(agent.outcome, 200)}</span>` : null}</span></button>
    <span class="buttons"><button class="small" onClick=${() => open(agent.id)}>Open</button>
      ${screen.can('prompt') ? html`<button class="small" onClick=${() => steer(agent)}>${agent.is_working ? 'Steer' : 'Write'}</button>
        ${agent.is_working ? html`<button class="small" onClick=${() => act({ type: 'Interrupt', agent: agent.id }, `${agent.id} was stopped.`)}>Stop</button>` : null}
        ${agent.task_id && !['completed', 'failed', 'cancelled'].includes(agent.state) ? html`<button class="small" onClick=${() => act({ type: 'CancelTask', task_id: agent.task_id }, 'The task was cancelled.')}>Cancel task</button>` : null}
        <button class="small" onClick=${() => act({ type: 'CloseAgent', agent: agent.id }, `${agent.id} was closed.`)}>Close</button>` : null}</span>
  </li>`)}</ul>` : html`<${Empty}>No sub-agents in this session.<//>`}<//>`;
}

// --- about ---

export function StatusSheet({ screen, close }) {
  const { state, session } = screen;
  const rows = [['Session', session.id], ['Folder', state.cwd], ['Project', state.root], ['Branch', state.branch], ['Model', state.model], ['Answering', state.running_model], ['Effort', state.effort], ['Role', state.role],
    ['Permissions', state.permission_mode], ['Sandbox', state.sandbox], ['Version', state.version], ['Cost', state.cost_usd === null ? 'unpriced' : usd(state.cost_usd ?? 0)], ['Limit', state.low_limit]].filter(([, value]) => value);
  return html`<${Dialog} title="Status" close=${close}>
    ${(state.warnings ?? []).map((one) => html`<p class="warn" key=${one}>! ${one}</p>`)}
    ${state.notice ? html`<p>${state.notice}</p>` : null}
    <dl class="facts-list">${rows.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${state.servers?.length ? html`<h3>MCP servers</h3><ul class="plain">${state.servers.map((one) => html`<li key=${one.name}><b>${one.name}</b> <span class=${one.state === 'failed' ? 'bad' : 'dim'}>${join(one.state, one.tools && plural(one.tools, 'tool'), one.detail)}</span>
      ${screen.can('approve') ? html` <button class="small" onClick=${() => screen.act({ type: 'ControlServers', action: 'reconnect', names: [one.name] }, `${one.name} connects again.`)}>Reconnect</button>` : null}</li>`)}</ul>` : null}
  <//>`;
}

export function Errors({ screen, close }) {
  const errors = screen.session.blocks.filter(({ kind, level, error, state }) => (kind === 'notice' && level === 'error') || (kind === 'end' && error) || (kind === 'call' && state === 'error')).slice(-80).toReversed();
  return html`<${Dialog} title="Errors" close=${close}>${errors.length ? html`<ul class="rows-list">${errors.map((block) => html`<li key=${block.key}><button class="row" onClick=${() => { close(); screen.transcript.current?.show(block.key); }}>
    <span class="what"><span class="bad" dir="auto">${oneLine(block.error || block.text || `${block.title ?? block.name} ${block.about ?? ''}`, 300)}</span><span class="detail" dir="auto">${oneLine(block.hint || block.result || '', 200)}</span></span></button></li>`)}</ul>` : html`<${Empty}>No errors.<//>`}<//>`;
}

export function Help({ screen, close }) {
  const [words, setWords] = useState('');
  const [commands] = useLoaded(() => get(`${screen.session.path}/complete`, { line: '/', column: '1', first: 'true' }).then(({ items }) => items, () => []), []);
  const fits = (...texts) => texts.join(' ').toLowerCase().includes(words.toLowerCase());
  const list = (rows) => html`<dl class="key-list">${rows.map(([key, about]) => html`<div key=${key}><dt>${key.split(', ').map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${about}</dd></div>`)}</dl>`;
  const found = (commands ?? []).filter((one) => fits(one.label, one.help));
  return html`<${Dialog} title="Keys and commands" close=${close} size="wide">
    <input type="search" class="filter" data-focus aria-label="Find a key or command" placeholder="Find a key or command" value=${words} onInput=${(event) => setWords(event.target.value)} />
    ${KEY_LIST.map(([title, rows]) => [title, rows.filter((row) => fits(...row))]).filter(([, rows]) => rows.length).map(([title, rows]) => html`<section key=${title}><h3>${title}</h3>${list(rows)}</section>`)}
    ${found.length ? html`<section><h3>Commands</h3><dl class="key-list">${found.map((one) => html`<div key=${one.label}><dt><button class="small mono" onClick=${() => { close(); screen.composer.current?.setText(`${one.insert.trim()} `); }}>${one.label}</button></dt><dd>${one.help || one.hint}</dd></div>`)}</dl></section>` : null}
  <//>`;
}
