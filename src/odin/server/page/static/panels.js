// What is known of a session beside its conversation: tasks, activity, queue, status line, side panel.

import { clip, count, Elapsed, html, join, load, modelName, MODES, oneLine, plural, save, short, usd, useEffect, useLayoutEffect, useRef, useState } from './base.js';
import { toast } from './dialogs.js';
import { Counts } from './diff.js';

const TODO_MARKS = { pending: '○', in_progress: '▸', completed: '✓', cancelled: '✗' };

function TodoList({ todos }) {
  return html`<ul class="todos">${todos.map((todo) => html`<li key=${todo.id} data-state=${todo.status}>
    <span class="mark" aria-hidden="true">${TODO_MARKS[todo.status]}</span><span class="unseen">${todo.status.replace('_', ' ')}: </span><span dir="auto">${
    todo.status === 'in_progress' && todo.active_form ? todo.active_form : todo.content}</span></li>`)}</ul>`;
}

const countDone = (todos) => `${todos.filter(({ status }) => status === 'completed').length}/${todos.length}`;

export function TodoPanel({ todos }) {
  const [isFolded, setFolded] = useState(() => load('todos', 'folded') === 'folded');
  useEffect(() => {
    const toggle = () => setFolded((is) => !is);
    addEventListener('odin-todos', toggle);
    return () => removeEventListener('odin-todos', toggle);
  }, []);
  if (!todos.length) return null;
  const now = todos.find(({ status }) => status === 'in_progress') ?? todos.find(({ status }) => status === 'pending');
  const words = now ? (now.status === 'in_progress' && now.active_form) || now.content : 'all done';
  const toggle = () => { save('todos', isFolded ? 'open' : ''); setFolded(!isFolded); };
  return html`<section class="todo-panel" aria-label="Tasks">
    <button class="fold" aria-expanded=${!isFolded} onClick=${toggle}><span class="mark" aria-hidden="true">${isFolded ? '▸' : '▾'}</span>
      <span class="what"><b>Tasks</b> <span class="dim">${countDone(todos)}</span>${isFolded ? html`<span class="dim">: </span><span dir="auto">${words}</span>` : null}</span></button>
    ${isFolded ? null : html`<${TodoList} todos=${todos} />`}
  </section>`;
}

export function ActivityLine({ screen }) {
  const { state } = screen;
  const activity = state?.activity;
  if (!state?.is_working && !activity?.is_busy && !activity?.is_asking && !activity?.is_failure) return null;
  const { text, detail, is_busy: isBusy, is_asking: isAsking, is_failure: isFailure, since } = activity ?? {};
  return html`<div class="activity" data-state=${isFailure ? 'failure' : isAsking ? 'asking' : isBusy ? 'busy' : 'idle'}>
    <span class="pulse" aria-hidden="true"></span>
    <span class="what" dir="auto">${text || 'working'}${detail ? html` <span class="dim">${detail}</span>` : null}</span>
    ${isBusy && since ? html`<span class="dim"><${Elapsed} since=${since} /></span>` : null}
  </div>`;
}

export function StatusLine({ screen }) {
  const { state } = screen;
  if (!state) return null;
  const share = state.context_limit ? Math.round((100 * state.context_tokens) / state.context_limit) : null;
  const isFallback = state.running_model && state.model && state.running_model !== state.model;
  const tokens = totalTokens(state.usage);
  const parts = [
    state.permission_mode && state.permission_mode !== 'default' && [`permissions: ${state.permission_mode}`, 'permissions', state.permission_mode === 'bypassPermissions' ? 'bad' : 'warn'],
    state.loop && state.loop.state !== 'idle' && [`loop ${state.loop.iteration}/${state.loop.limit}`, 'loop', 'accent'],
    [isFallback ? `${modelName(state.running_model)} (instead of ${modelName(state.model)})` : modelName(state.model ?? ''), 'model'],
    share !== null && [`context ${share}%`, 'context', share >= 80 ? 'warn' : ''],
    state.low_limit && [`limit: ${state.low_limit}`, 'limit', 'warn'],
    state.cost_usd === null ? ['unpriced', 'cost'] : state.cost_usd > 0 && [usd(state.cost_usd), 'cost'],
    tokens > 0 && [`${short(tokens)} tokens`, 'tokens'],
    state.sandbox && [state.sandbox.split(',')[0].split(' (')[0], 'sandbox', state.sandbox.startsWith('no ') ? 'warn' : ''],
    state.branch && [state.branch, 'branch'],
  ].filter(Boolean);
  return html`<div class="status-line" role="group" aria-label="Status">${parts.map(([text, name, tone]) => html`<span key=${name} class=${tone} data-part=${name} dir="auto">${text}</span>`)}</div>`;
}

const totalTokens = (usage) => (usage ? (usage.input ?? 0) + (usage.output ?? 0) + (usage.cache_read ?? 0) + (usage.cache_write ?? 0) : 0);

// --- the queue ---

const DELIVERIES = { steer: 'into the running turn', merge: 'with the next request' };

export function Queue({ screen }) {
  const { session, state } = screen;
  const node = useRef(null);
  useEffect(() => {
    const focus = () => node.current?.querySelector('[tabindex="0"]')?.focus();
    addEventListener('odin-queue', focus);
    return () => removeEventListener('odin-queue', focus);
  }, []);
  const act = (op) => screen.act({ agent: session.agent, ...op }).then((done) => done || toast('This prompt has started already.'));
  const change = (prompt, more) => act({ type: 'ChangePrompt', id: prompt.id, ...more });
  const onKeyDown = (event, prompt) => {
    if (event.target.tagName === 'BUTTON' && ['Enter', ' '].includes(event.key)) return;
    const rows = [...node.current.querySelectorAll('li')];
    const here = rows.findIndex((row) => row.contains(event.target));
    const modes = Object.keys(MODES);
    const actions = {
      ArrowDown: () => rows[here + 1]?.focus(), ArrowUp: () => rows[here - 1]?.focus(), j: () => rows[here + 1]?.focus(), k: () => rows[here - 1]?.focus(),
      e: () => screen.composer.current.edit(prompt), Enter: () => screen.composer.current.edit(prompt),
      d: () => act({ type: 'DropPrompt', id: prompt.id }), Delete: () => act({ type: 'DropPrompt', id: prompt.id }),
      s: () => change(prompt, { delivery: 'steer' }), w: () => change(prompt, { delivery: prompt.delivery ?? 'queue' }),
      m: () => change(prompt, { mode: modes[(modes.indexOf(prompt.mode) + 1) % 3] }), Escape: screen.write, i: screen.write,
    };
    const action = !event.ctrlKey && !event.altKey && !event.metaKey && actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  };
  const may = screen.can('prompt');
  return html`<section class="queue" aria-label=${`${plural(state.queue.length, 'queued prompt')}`}>
    <ol ref=${node}>${state.queue.map((prompt, at) => html`<li key=${prompt.id} tabindex=${may ? 0 : undefined} onKeyDown=${(event) => may && onKeyDown(event, prompt)}>
      <span class="number">${at + 1}</span>
      <span class="what"><span dir="auto">${oneLine(prompt.display_text || prompt.text, 200)}</span>
        <span class="dim">${join(prompt.mode !== 'edit_mode' && MODES[prompt.mode], prompt.paused ? 'paused' : DELIVERIES[prompt.delivery], prompt.attachments?.length && plural(prompt.attachments.length, 'attachment'))}</span></span>
      ${may ? html`<span class="buttons">
        ${prompt.paused ? html`<button class="small" onClick=${() => change(prompt, { delivery: prompt.delivery ?? 'queue' })}>Send</button>` : null}
        ${state.executing && prompt.delivery !== 'steer' ? html`<button class="small" onClick=${() => change(prompt, { delivery: 'steer' })}>Steer</button>` : null}
        <button class="small" onClick=${() => screen.composer.current.edit(prompt)}>Edit</button>
        <button class="small" aria-label=${`Drop queued prompt ${at + 1}`} onClick=${() => act({ type: 'DropPrompt', id: prompt.id })}>Drop</button></span>` : null}
    </li>`)}</ol>
  </section>`;
}

// --- the side panel ---

const Section = ({ title, children, more }) => html`<section aria-label=${title}><h2>${title}${more ? html` <span class="dim">${more}</span>` : null}</h2>${children}</section>`;

export function SidePanel({ screen }) {
  return html`<aside class="side" aria-label="Side panel"><${Sections} screen=${screen} /></aside>`;
}

export function Drawer({ screen, close }) {
  const node = useRef(null);
  useLayoutEffect(() => {
    node.current.showModal();
    return () => node.current?.close();
  }, []);
  return html`<dialog class="drawer" ref=${node} aria-label="Side panel" onCancel=${(event) => { event.preventDefault(); close(); }}
      onClick=${(event) => { if (event.target === node.current || event.target.closest('[data-closes]')) close(); }}>
    <div class="side"><button class="icon close" aria-label="Close" onClick=${close}>✕</button><${Sections} screen=${screen} /></div>
  </dialog>`;
}

// A row that opens something; closing the drawer first.
const Action = ({ run, children, label }) => html`<button class="row" data-closes aria-label=${label} onClick=${run}>${children}</button>`;

function Sections({ screen }) {
  const { session, state } = screen;
  if (!state) return null;
  const may = screen.can('prompt');
  const run = (line) => () => screen.run(line);
  const isFallback = state.running_model && state.running_model !== state.model;
  return html`
    <${Section} title="Model">
      <${Action} run=${may ? run('/model') : run('/status')}><span dir="auto">${state.model || 'unknown'}</span><//>
      ${isFallback ? html`<p class="warn">answering: ${state.running_model}</p>` : null}
      <p class="pairs">${[['effort', state.effort || 'usual', '/effort'], ['role', state.role || 'builder', '/role', 'approve'], ['permissions', state.permission_mode || 'default', '/permissions', 'approve']]
        .filter(([name]) => !session.agent || name === 'effort').map(([name, value, line, right = 'prompt']) => (screen.can(right)
          ? html`<button key=${name} class="chip" data-closes onClick=${run(line)}>${name} <b>${value}</b></button>`
          : html`<span key=${name} class="chip">${name} <b>${value}</b></span>`))}</p>
      ${state.pool ? html`<p class="dim">pool ${state.pool}</p>` : null}
    <//>
    ${state.context_limit ? html`<${Context} state=${state} run=${run('/context')} />` : null}
    <${Cost} state=${state} run=${run('/usage')} />
    ${state.todos?.length ? html`<${Section} title="Tasks" more=${countDone(state.todos)}><${TodoList} todos=${state.todos} /><//>` : null}
    ${state.queue?.length ? html`<${Section} title="Queue" more=${state.queue.length}><ul class="plain">${state.queue.map((one) => html`<li key=${one.id}>${oneLine(one.display_text || one.text, 80)}</li>`)}</ul><//>` : null}
    ${state.agents?.length ? html`<${Agents} screen=${screen} />` : null}
    ${state.files?.length ? html`<${Section} title="Changed files" more=${state.files.length}>
      ${state.files.slice(0, 12).map((file) => html`<${Action} key=${file.path} run=${() => screen.run(`/diff ${file.path}`)}><span class="path" dir="auto">${file.path}</span> ${
        file.is_deleted ? html`<span class="bad">deleted</span>` : file.is_counted === false ? null : html`<${Counts} ...${file} />`}<//>`)}
      <${Action} run=${run('/diff')}><span class="dim">${state.files.length > 12 ? `${state.files.length - 12} more · ` : ''}all changes</span><//>
    <//>` : null}
    ${state.processes?.length ? html`<${Section} title="Background processes" more=${state.processes.filter(({ status }) => status === 'running').length || ''}>
      ${state.processes.slice(0, 6).map((one) => html`<${Action} key=${one.id} run=${() => screen.run(`/ps ${one.id}`)}>
        <span class=${one.status === 'running' ? 'accent' : one.status === 'failed' ? 'bad' : 'dim'}>${one.status === 'running' ? '▶' : one.status === 'failed' ? '✗' : '■'}</span>
        <b>${one.id}</b> <span dir="auto">${clip(one.description || one.command, 60)}</span><//>`)}
    <//>` : null}
    ${state.servers?.length ? html`<${Section} title="MCP servers">${state.servers.map((one) => html`<p key=${one.name} class="pair"><span dir="auto">${one.name}</span> <span class=${one.state === 'failed' ? 'bad' : 'dim'}>${one.state}</span></p>`)}<//>` : null}
    ${state.skills?.length ? html`<${Section} title="Skills"><p class="dim">${state.skills.slice(0, 12).map((one) => one.name ?? one).join(', ')}</p><//>` : null}
    <${Section} title="Project">
      <p class="path">${state.cwd}</p>
      ${state.branch ? html`<p class="dim">${state.branch}</p>` : null}
      ${state.sandbox ? html`<p class="dim">${state.sandbox}</p>` : null}
      ${state.warnings?.length ? html`<${Action} run=${run('/status')}><span class="warn">${plural(state.warnings.length, 'warning')}</span><//>` : null}
    <//>`;
}

function Context({ state, run }) {
  const share = Math.min(state.context_tokens / state.context_limit, 1);
  const set = (node) => node?.style.setProperty('--share', share);
  return html`<${Section} title="Context">
    <${Action} run=${run} label=${`Context: ${Math.round(share * 100)}% used`}><span class=${`meter ${share >= 0.8 ? 'warn' : ''}`} ref=${set}></span> <span>${Math.round(share * 100)}%</span><//>
    <p class="dim">${count(state.context_tokens)} of ${count(state.context_limit)} tokens</p>
  <//>`;
}

function Cost({ state, run }) {
  const tokens = totalTokens(state.usage);
  if (!tokens && !state.cost_usd) return null;
  const cost = state.cost_usd === null ? 'unpriced' : usd(state.cost_usd);
  return html`<${Section} title="Cost">
    <${Action} run=${run}>${cost} · ${short(tokens)} tokens<//>
    ${state.budget_usd ? html`<p class="dim">${usd(Math.max(state.budget_usd - (state.cost_usd ?? 0), 0))} of ${usd(state.budget_usd)} left</p>` : null}
    ${state.low_limit ? html`<p class="warn">limit: ${state.low_limit}</p>` : null}
  <//>`;
}

export const agentState = (agent) => agent.text || agent.state.replace('_', ' ');

function Agents({ screen }) {
  const { session, state } = screen;
  const asking = state.agents.filter(({ is_asking }) => is_asking).length;
  return html`<${Section} title="Agents" more=${asking ? `${asking} waiting for you` : ''}>
    ${session.agent ? html`<a class="row" data-closes href=${`#/s/${session.id}`}>main</a>` : null}
    ${state.agents.map((agent) => html`<a key=${agent.id} class="row" data-closes href=${`#/s/${session.id}/${encodeURIComponent(agent.id)}`} aria-current=${agent.id === session.agent ? 'page' : undefined}>
      <span class=${agent.is_asking ? 'warn' : agent.is_working ? 'accent' : 'dim'} aria-hidden="true">${agent.is_asking ? '?' : agent.is_working ? '◐' : '•'}</span>
      <span class="what"><b class="agent-name" data-color=${agent.color || undefined}>${agent.id}</b> <span dir="auto">${clip(agent.description || '', 60)}</span>
        <span class="detail" dir="auto">${join(oneLine(agentState(agent), 80), agent.context_limit && `context ${Math.round((100 * agent.context_tokens) / agent.context_limit)}%`)}</span></span></a>`)}
    <${Action} run=${() => screen.run('/agents')}><span class="dim">stop, steer or close</span><//>
  <//>`;
}
