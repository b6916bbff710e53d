// Whatever is asked of the user: one request at a time, in full, with its answers always in view.

import { escapeHidden, html, isAllVisible, plural, randomId, revealSpaces, useEffect, useRef, useState } from './base.js';
import { describe, post, submit } from './connection.js';
import { hasDialog, toast, toastError } from './dialogs.js';
import { Diff, makeDiff } from './diff.js';
import { MarkdownText } from './markdown.js';

const DANGER_WORDS = { read_only: 'read-only', harmless: 'harmless', changes_files: 'changes files', network: 'network', outside_project: 'outside the project', hard_to_undo: 'hard to undo', credentials: 'credentials' };
const SCOPES = [['session', 'for this session'], ['project', 'for this project'], ['user', 'for all projects']];
const KEYS = {
  permission: { y: 'allow_once', s: 'allow_session', p: 'allow_project', u: 'allow_everywhere', a: 'allow_mode', n: 'deny', d: 'deny_always', r: 'deny_words', w: 'allow_note', e: 'edit', v: 'all', m: 'more', '?': 'keys', Escape: 'stop' },
  plan: { y: 'approve', a: 'approve_edits', s: 'approve_new_session', r: 'revise', c: 'revise', n: 'keep_planning', Escape: 'keep_planning', e: 'edit_plan', w: 'comment' },
};

export function InteractionView({ screen, ask: original, total }) {
  const [ask, setAsk] = useState(original); // not `original` after its arguments were edited
  const [step, setStep] = useState({ name: 'ask' });
  const [isMore, setMore] = useState(false);
  const [isAll, setAll] = useState(false);
  const [message, setMessage] = useState('');
  const [isBusy, setBusy] = useState(false);
  const panel = useRef(null);
  const body = useRef(null);
  const required = useRef(null);
  const may = screen.can('approve');
  const { kind } = ask;
  const isPermission = kind === 'permission';
  const isForm = ask.form?.some(({ name }) => name === 'answers');
  const facts = ask.facts ?? {};
  const isEdited = ask !== original;
  const hasRun = isPermission && Boolean(original.facts.effects);
  const choices = ask.choices.filter(({ asks }) => asks !== 'rule' || offeredRules(ask).length);
  const argsField = may && ask.form?.find(({ name }) => name === 'args');

  // What somebody types for the prompt must not answer: the request gets the keys once the prompt is empty and at rest.
  useEffect(() => {
    const timer = setInterval(() => {
      const active = document.activeElement;
      if (!may || screen.composer.current?.isInUse || hasDialog()) return;
      if (active === document.body || active?.closest('.composer, .transcript')) panel.current.focus({ preventScroll: true });
      clearInterval(timer);
    }, 250);
    return () => {
      clearInterval(timer);
      if (panel.current?.contains(document.activeElement)) setTimeout(screen.write);
    };
  }, []);

  useEffect(() => { body.current.scrollTop = 0; }, [step.name]);

  const give = async (answer, note = '') => {
    setBusy(true);
    setMessage('');
    try {
      if (note) await screen.session.submit({ type: 'Prompt', id: randomId(), text: note, mode: screen.session.mode, delivery: 'merge' });
      const { done } = await screen.session.answer({ id: ask.id, ...answer });
      if (!done) toast('This was answered already.');
      else if (answer.choice.startsWith('approve_new_session')) carryOut(screen, original.facts.path, answer.role ?? '');
      else if (answer.choice === 'approve' || answer.choice === 'approve_edits') screen.session.mode = 'edit_mode';
    } catch (error) {
      setMessage(describe(error));
      setBusy(false);
    }
  };

  const isSeen = () => {
    const end = required.current?.getBoundingClientRect().bottom ?? 0;
    const view = body.current.getBoundingClientRect();
    if (!isPermission || step.name !== 'ask' || end <= view.bottom + 4) return true;
    body.current.scrollTop += view.height * 0.85;
    setMessage('More below. Read the whole request before allowing it.');
    return false;
  };

  const choose = (choice) => {
    if (choice.key.startsWith('allow') && !isSeen()) return;
    setMessage('');
    if (choice.asks === 'rule') setStep({ name: 'rule', choice });
    else if (choice.asks === 'text') setStep({ name: 'text', choice });
    else if (choice.key === 'allow_once' && isEdited) {
      const names = Object.keys({ ...original.facts.args, ...facts.args }).filter((name) => JSON.stringify(original.facts.args[name]) !== JSON.stringify(facts.args[name]));
      give({ choice: choice.key, args: facts.args, summary: `changed ${names.join(', ')}` });
    } else {
      const plan = step.plan !== undefined && step.plan !== facts.text && choice.fields?.includes('plan') ? { plan: step.plan } : {};
      give({ choice: choice.key, ...(choice.permission_mode && { permission_mode: choice.permission_mode }), ...(choice.role && { role: choice.role }), ...plan });
    }
  };
  const find = (key) => choices.find((one) => one.key === key);
  const deny = find('deny');
  const extras = may && isPermission ? [
    deny && ['deny_words', hasRun ? 'Discard and tell the model…' : 'Deny with a reason', () => setStep({ name: 'text', choice: deny })],
    argsField && !ask.agent && ['allow_note', `${hasRun ? 'Keep' : 'Allow'} with a note`, () => isSeen() && setStep({ name: 'note', choice: find('allow_once') })],
    argsField && ['edit', hasRun ? 'Edit and run again' : 'Edit', () => setStep({ name: 'edit' })],
    ['all', isAll ? 'Show less' : 'Show all', () => setAll(!isAll)],
  ].filter(Boolean) : may && kind === 'plan' ? [
    ['edit_plan', 'Edit the plan', () => setStep({ name: 'plan', plan: step.plan ?? facts.text })],
  ] : [];

  const onKeyDown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !may) return;
    if (event.key === 'Escape' && step.name !== 'ask') {
      event.preventDefault();
      event.stopPropagation();
      setStep({ ...step, name: 'ask' });
      panel.current.focus();
      return;
    }
    if (event.target.closest('input, textarea, select') || step.name !== 'ask') return;
    const action = KEYS[kind]?.[event.key];
    if (!action || isBusy) return;
    const choice = find(action) ?? (kind === 'plan' && action === 'approve_new_session' ? choices.find(({ key }) => key.startsWith(action)) : null);
    const extra = extras.find(([name]) => name === action);
    event.preventDefault();
    event.stopPropagation();
    if (choice) choose(choice);
    else if (extra) extra[2]();
    else if (action === 'more') setMore(!isMore);
    else if (action === 'keys') toast(listKeys(choices, extras, kind), 'info', 15000);
  };
  const keyOf = (name) => Object.entries(KEYS[kind] ?? {}).find(([, action]) => action === name || (action === 'approve_new_session' && name === action))?.[0];

  const back = () => { setStep({ ...step, name: 'ask' }); panel.current?.focus(); };
  const usual = choices.filter(({ rare, key }) => isMore || (!rare && key !== 'stop'));
  const shownExtras = extras.filter(([name]) => isMore || name === 'deny_words' || name === 'edit_plan');
  const hasMore = choices.some(({ rare }) => rare) || extras.length > shownExtras.length;
  const title = ask.title.length > 150 ? `${ask.title.slice(0, 149)}…` : ask.title;
  const head = kind === 'plan' ? `Plan: ${title}` : isForm ? (ask.agent ? `The sub-agent ${ask.agent} asks` : kind === 'elicitation' ? `The MCP server ${facts.server} asks` : 'Odin asks') : title;

  return html`<section class="interaction" ref=${panel} tabindex="-1" role="region" aria-label="Request" data-kind=${kind} data-state=${step.name} onKeyDown=${onKeyDown}>
    <header>
      <h2 aria-live="assertive">${isEdited ? 'Edited call: ' : ''}${ask.agent && !isForm ? html`<span class="dim">${escapeHidden(ask.agent)} asks: </span>` : null}${revealSpaces(head)}</h2>
      ${total > 1 ? html`<span class="chip count" aria-label=${`1 of ${total} requests`}>1 of ${total}</span>` : null}
    </header>
    <div class="interaction-body" ref=${body} tabindex="0" role="group" aria-label="Details">
      ${ask.task ? html`<p class="dim">${escapeHidden(ask.task)}</p>` : null}
      ${isForm ? (may ? html`<${Form} fields=${ask.form.filter(({ name }) => name === 'answers')} give=${give} isBusy=${isBusy} hasCancel=${Boolean(find('cancel'))} />` : html`<${Questions} ask=${ask} />`)
        : step.name === 'plan' ? html`<textarea class="plan-edit" aria-label="Plan" rows="14" value=${step.plan} data-focus onInput=${(event) => setStep({ ...step, plan: event.target.value })} ref=${focusFirst}></textarea>`
        : step.name === 'edit' ? html`<${ArgumentEditor} args=${facts.args} save=${(args) => { setAsk(replaceArguments(original, args)); back(); }} back=${back} />`
        : html`<${Details} ...${{ ask, required, isAll }} plan=${step.plan} />`}
    </div>
    ${isForm ? null : html`<div class="danger-line">
      ${ask.danger ? html`<span class="danger-tag" data-danger=${ask.danger}>${DANGER_WORDS[ask.danger] ?? ask.danger}</span>` : null}
      ${ask.effect ? html`<span dir="auto">${escapeHidden(ask.effect)}</span>` : null}
      ${ask.sandbox ? html`<span class="dim" dir="auto">${escapeHidden(ask.sandbox)}</span>` : null}
    </div>`}
    <p class="message warn" role="alert">${message}</p>
    ${!may ? html`<p class="viewing">Only a client that may approve can answer. Waiting for ${ask.may_answer === 'user' ? 'the user' : 'an answer'}.</p>`
      : isForm || step.name === 'edit' ? null
      : step.name === 'rule' ? html`<${RuleStep} ...${{ ask, give, back, isBusy }} choice=${step.choice} />`
      : step.name === 'text' || step.name === 'note' ? html`<${TextStep} ...${{ ask, give, back, isBusy, step, hasRun }} />`
      : step.name === 'plan' ? html`<div class="answers"><button class="primary" onClick=${back}>Use this plan</button><button onClick=${() => { setStep({ name: 'ask' }); panel.current.focus(); }}>Discard the changes</button></div>`
      : html`<div class="answers" role="group" aria-label="Answers">
          ${usual.map((choice) => html`<${AnswerButton} key=${choice.key} label=${choice.label} about=${choice.about} keyName=${keyOf(choice.key)} tone=${toneOf(choice, ask)} isBusy=${isBusy} run=${() => choose(choice)} />`)}
          ${shownExtras.map(([name, label, run]) => html`<${AnswerButton} key=${name} label=${label} keyName=${keyOf(name)} isBusy=${isBusy} run=${run} />`)}
          ${hasMore ? html`<${AnswerButton} label=${isMore ? 'Fewer' : 'More…'} keyName="m" isBusy=${false} run=${() => setMore(!isMore)} />` : null}
        </div>`}
  </section>`;
}

const toneOf = ({ key }, { kind }) => (key === 'allow_once' || key === 'approve' || key === 'yes' ? 'primary' : key === 'stop' && kind === 'permission' ? 'danger' : '');

const AnswerButton = ({ label, about, keyName, tone = '', isBusy, run }) => html`<button class=${tone} disabled=${isBusy} title=${about || undefined}
  aria-keyshortcuts=${keyName?.length === 1 ? keyName : undefined} onClick=${run}><span dir="auto">${label}</span>${keyName && keyName.length === 1 ? html` <kbd aria-hidden="true">${keyName}</kbd>` : null}</button>`;

const listKeys = (choices, extras, kind) => Object.entries(KEYS[kind] ?? {}).flatMap(([key, action]) => {
  const label = choices.find((one) => one.key === action)?.label ?? extras.find(([name]) => name === action)?.[1];
  return label ? [`${key === 'Escape' ? 'Esc' : key} ${label}`] : [];
}).join(' · ');

const offeredRules = (ask) => (ask.form ?? []).filter(({ name }) => name === 'rule').flatMap(({ options }) => options.map(({ label }) => label)).filter(isAllVisible);

function focusFirst(node) {
  if (node && !node.dataset.seen) {
    node.dataset.seen = '1';
    node.focus();
  }
}

// --- what is asked ---

function Details({ ask, required, isAll, plan }) {
  const details = ask.details ?? [];
  const cut = details.findIndex(({ kind }) => kind === 'diff' || kind === 'markdown');
  const count = cut < 0 ? details.length : cut;
  const args = ask.facts?.args;
  return html`
    <div ref=${required}>
      ${details.slice(0, count).map((one, at) => html`<${Detail} key=${at} ...${one} />`)}
      ${(ask.warnings ?? []).map((line) => html`<p class="warn" key=${line}>${escapeHidden(line)}</p>`)}
    </div>
    ${isAll && args ? html`<dl class="args">${Object.entries(args).map(([name, value]) => html`<div key=${name}><dt>${escapeHidden(name)}</dt>
      <dd><pre class="quote">${escapeHidden(typeof value === 'string' ? value : JSON.stringify(value))}</pre></dd></div>`)}</dl>
      ${offeredRules(ask).length ? html`<p class="dim">Rules you can save:</p><pre class="quote">${offeredRules(ask).join('\n')}</pre>` : null}` : null}
    ${details.slice(count).map((one, at) => html`<${Detail} key=${`rest-${at}`} ...${one} text=${one.kind === 'markdown' && plan !== undefined ? plan : one.text} />`)}`;
}

function Detail({ kind, text, heading }) {
  const title = heading ? html`<p class="dim">${escapeHidden(heading)}</p>` : null;
  if (kind === 'quote') return html`${title}<pre class="quote">${revealSpaces(text)}</pre>`;
  if (kind === 'diff') return html`${title}<${Diff} text=${text} whole=${true} showPaths=${true} reveal=${escapeHidden} />`;
  if (kind === 'markdown') return html`${title}<${MarkdownText} key=${text.length} text=${text} />`;
  return html`${title}<p class="dim">${escapeHidden(text)}</p>`;
}

const Questions = ({ ask }) => html`<dl class="args">${ask.form.map((field, at) => html`<div key=${at}><dt>${field.label}</dt><dd>${field.text}
  ${field.options?.length ? html`<ul>${field.options.map(({ label, detail }) => html`<li key=${label}>${label}${detail ? ` – ${detail}` : ''}</li>`)}</ul>` : null}</dd></div>`)}</dl>`;

// --- the steps of an answer ---

function RuleStep({ ask, choice, give, back, isBusy }) {
  const rules = offeredRules(ask);
  const [rule, setRule] = useState(rules[0] ?? '');
  const [scope, setScope] = useState(choice.scope ?? 'session');
  const [reason, setReason] = useState('');
  const isAllowing = choice.key.startsWith('allow');
  const submit = (event) => {
    event.preventDefault();
    if (rule.trim()) give({ choice: choice.key, rule: rule.trim(), scope, ...(reason.trim() && { text: reason.trim() }) });
  };
  return html`<form class="step stack" onSubmit=${submit}>
    ${rules.length > 1 ? html`<fieldset><legend>Rules that cover this, the narrowest first</legend>${rules.map((one) => html`<label class="option" key=${one}><input type="radio" name="rule" checked=${rule === one} onChange=${() => setRule(one)} /><code dir="auto">${one}</code></label>`)}</fieldset>` : null}
    <label>${isAllowing ? 'Allow and save this rule' : 'Deny and save this rule'}<input class="mono" value=${rule} dir="auto" ref=${focusFirst} onInput=${(event) => setRule(event.target.value)} required /></label>
    <fieldset class="inline"><legend>Save it</legend>${SCOPES.map(([name, words]) => html`<label class="option" key=${name}><input type="radio" name="scope" checked=${scope === name} onChange=${() => setScope(name)} />${words}</label>`)}</fieldset>
    ${choice.fields?.includes('text') ? html`<label>Reason for the model (optional)<input value=${reason} dir="auto" onInput=${(event) => setReason(event.target.value)} /></label>` : null}
    <div class="buttons"><button onClick=${back}>Back</button><button class="primary" disabled=${isBusy}>Save rule</button></div>
  </form>`;
}

function TextStep({ ask, step, give, back, isBusy, hasRun }) {
  const [text, setText] = useState('');
  const field = ask.form.find(({ name }) => name === 'text');
  const isNote = step.name === 'note';
  const label = isNote ? 'Note for the model, sent with the result' : field?.label ?? 'Text';
  const verb = step.choice.asks ? 'Send' : isNote ? (hasRun ? 'Keep' : 'Allow') : hasRun ? 'Discard' : 'Deny';
  const submit = (event) => {
    event?.preventDefault();
    if (isNote) give({ choice: step.choice.key }, text.trim());
    else if (text.trim() || !step.choice.asks) give({ choice: step.choice.key, text: text.trim() });
  };
  return html`<form class="step stack" onSubmit=${submit}>
    <label>${label}<textarea rows="2" ref=${focusFirst} value=${text} placeholder=${field?.text ?? ''} onInput=${(event) => setText(event.target.value)}
      onKeyDown=${(event) => { if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) submit(event); }}></textarea></label>
    <div class="buttons"><button onClick=${back}>Back</button><button class="primary" disabled=${isBusy || (Boolean(step.choice.asks) && !text.trim())}>${verb}</button></div>
  </form>`;
}

// One field for each argument: text as it is, other values and text with hidden characters as JSON.
function ArgumentEditor({ args, save, back }) {
  const [texts, setTexts] = useState(() => Object.fromEntries(Object.entries(args).map(([name, value]) => [name, isText(value) ? value : escapeJson(JSON.stringify(value, null, 2))])));
  const [problem, setProblem] = useState('');
  const submit = (event) => {
    event?.preventDefault();
    const made = {};
    for (const [name, value] of Object.entries(args)) {
      if (isText(value)) made[name] = texts[name];
      else {
        try {
          made[name] = JSON.parse(texts[name]);
        } catch (error) {
          setProblem(`${name}: ${error.message}`);
          return;
        }
      }
    }
    if (typeof made.command === 'string' && !made.command.trim()) setProblem('The command is empty. Enter one, or go back.');
    else save(made);
  };
  return html`<form class="step stack edit" aria-label="Edit the call" onSubmit=${submit}>
    ${Object.keys(args).map((name, at) => html`<label key=${name}><span dir="auto">${name}${isText(args[name]) ? '' : ' (JSON)'}</span>
      <textarea class="mono" rows=${Math.min(Math.max(texts[name].split('\n').length, 1), 14)} value=${texts[name]} spellcheck=${false} ref=${at === 0 ? focusFirst : undefined}
        onInput=${(event) => setTexts({ ...texts, [name]: event.target.value })} onKeyDown=${(event) => { if (event.key === 's' && event.ctrlKey) submit(event); }}></textarea></label>`)}
    <p class="warn" role="alert">${problem}</p>
    <div class="buttons"><button onClick=${back}>Back</button><button class="primary">Use this</button></div>
  </form>`;
}

const isText = (value) => typeof value === 'string' && isAllVisible(value);
const escapeJson = (text) => text.replace(/[^\n]/gu, (char) => (isAllVisible(char) ? char : Array.from({ length: char.length }, (_, at) => `\\u${char.charCodeAt(at).toString(16).padStart(4, '0')}`).join('')));

// The request with edited arguments. Rules, modes and effects belong to the original ones.
function replaceArguments(original, args) {
  const before = original.facts.args;
  const changed = Object.keys({ ...before, ...args }).filter((name) => JSON.stringify(before[name]) !== JSON.stringify(args[name]));
  if (!changed.length) {
    toast('No changes.');
    return original;
  }
  const text = (value) => (value === undefined ? '' : isText(value) ? value : escapeJson(JSON.stringify(value, null, 2)));
  const target = ['command', 'file_path', 'path', 'url'].map((name) => args[name]).find((value) => typeof value === 'string') ?? '';
  return {
    ...original,
    facts: { ...original.facts, args },
    choices: original.choices.filter(({ key }) => ['allow_once', 'deny', 'stop'].includes(key)),
    form: original.form.filter(({ name }) => name !== 'rule'),
    details: [...(target ? [{ kind: 'quote', text: target }] : []), { kind: 'diff', text: changed.map((name) => makeDiff(name, text(before[name]), text(args[name]))).join('\n') }],
    effect: '', warnings: [], danger: null,
  };
}

// A plan that goes on in a session of its own: once this turn has ended.
async function carryOut(screen, plan, role) {
  const { session } = screen;
  for (let waited = 0; session.state.executing && waited < 600; waited++) await new Promise((done) => setTimeout(done, 100));
  try {
    const { session: id, prompt } = await post(`${session.path}/plan`, { plan, role });
    screen.go(id);
    if (prompt) await submit(id, { type: 'Prompt', ...prompt });
  } catch (error) {
    toastError(error);
  }
}

// --- forms ---

// Questions and what an MCP server asks for: options, own words, numbers, with their limits.
function Form({ fields, give, isBusy, hasCancel }) {
  const [picked, setPicked] = useState(() => fields.map(() => []));
  const [own, setOwn] = useState(() => fields.map(({ value }) => (value === null || value === undefined ? '' : String(value))));
  const [problems, setProblems] = useState({});
  const node = useRef(null);
  const answers = fields.map((_, at) => (own[at].trim() ? [...picked[at], own[at].trim()] : picked[at]));
  const submit = (event) => {
    event.preventDefault();
    const found = Object.fromEntries(fields.map((field, at) => [at, findProblem(field, answers[at])]).filter(([, problem]) => problem));
    setProblems(found);
    const [first] = Object.keys(found);
    if (first !== undefined) node.current.querySelector(`[data-field="${first}"] input, [data-field="${first}"] textarea`)?.focus();
    else give({ choice: 'answer', answers });
  };
  const toggle = (at, label, isMultiple) => {
    const has = picked[at].includes(label);
    setPicked(picked.map((one, other) => (other !== at ? one : isMultiple ? (has ? one.filter((word) => word !== label) : [...one, label]) : [label])));
    if (!isMultiple) setOwn(own.map((one, other) => (other === at ? '' : one)));
  };
  const write = (at, words, isMultiple) => {
    setOwn(own.map((one, other) => (other === at ? words : one)));
    if (words && !isMultiple) setPicked(picked.map((one, other) => (other === at ? [] : one)));
  };
  return html`<form class="form stack" ref=${node} onSubmit=${submit} novalidate>
    ${fields.map((field, at) => html`<${Field} key=${at} ...${{ field, at }} picked=${picked[at]} own=${own[at]} problem=${problems[at]} toggle=${(label) => toggle(at, label, field.multiple)} write=${(words) => write(at, words, field.multiple)} />`)}
    <div class="buttons">${hasCancel ? html`<button disabled=${isBusy} onClick=${() => give({ choice: 'cancel' })}>${fields.length > 1 ? 'Cancel all' : 'Cancel'}</button>` : null}
      <button class="primary" disabled=${isBusy}>Answer</button></div>
  </form>`;
}

function Field({ field, at, picked, own, problem, toggle, write }) {
  const [id] = useState(randomId);
  const options = field.options ?? [];
  const isNumber = field.type === 'integer' || field.type === 'number';
  const limits = describeLimits(field);
  const isLong = !options.length && !isNumber && !(field.maximum > 0 && field.maximum <= 200);
  const shared = { value: own, dir: 'auto', 'aria-invalid': Boolean(problem), 'aria-describedby': `${id}-problem`, onInput: (event) => write(event.target.value) };
  const box = isNumber ? html`<input type="text" inputmode=${field.type === 'integer' ? 'numeric' : 'decimal'} ...${shared} aria-label=${options.length ? 'Other' : field.label || field.text} required=${field.required} />`
    : isLong ? html`<textarea rows="2" ...${shared} aria-label=${field.label || field.text} required=${field.required}></textarea>`
    : html`<input type="text" ...${shared} aria-label=${options.length ? `Other answer: ${field.label || field.text}` : field.label || field.text} placeholder=${options.length ? 'Other…' : ''} required=${field.required} />`;
  return html`<fieldset data-field=${at}>
    <legend dir="auto">${escapeHidden(field.label || field.text)}${field.required ? html`<span class="dim"> (required)</span>` : null}</legend>
    ${field.label && field.text ? html`<p class="question">${escapeHidden(field.text)}</p>` : null}
    ${options.map(({ label, detail }, number) => html`<label class="option" key=${label}>
      <input type=${field.multiple ? 'checkbox' : 'radio'} name=${id} checked=${picked.includes(label)} onChange=${() => toggle(label)} />
      <span><span dir="auto">${escapeHidden(label)}</span>${number === 0 && !field.multiple ? html` <span class="dim">(default)</span>` : null}${detail ? html`<span class="detail" dir="auto">${escapeHidden(detail)}</span>` : null}</span></label>`)}
    ${field.type === 'choice' && options.length ? null : box}
    ${limits ? html`<p class="dim">${limits}</p>` : null}
    <p class="warn" id=${`${id}-problem`} role="alert">${problem ?? ''}</p>
  </fieldset>`;
}

function describeLimits({ minimum, maximum, multiple, type = 'text', options = [] }) {
  const unit = multiple ? 'options' : type === 'text' && !options.length ? 'characters' : '';
  const words = [minimum > 0 || (minimum !== null && minimum !== undefined && !unit) ? `at least ${minimum}` : '', maximum !== null && maximum !== undefined ? `at most ${maximum}` : ''].filter(Boolean).join(', ');
  return words ? `${words[0].toUpperCase()}${words.slice(1)}${unit ? ` ${unit}` : ''}.` : '';
}

function findProblem(field, words) {
  const labels = (field.options ?? []).map(({ label }) => label);
  const limit = (number, verb, unit) => {
    const say = (word, most) => `${verb} ${word} ${unit ? plural(Math.trunc(most), unit) : most}.`;
    if (field.minimum !== null && field.minimum !== undefined && number < field.minimum) return say('at least', field.minimum);
    if (field.maximum !== null && field.maximum !== undefined && number > field.maximum) return say('at most', field.maximum);
    return '';
  };
  if (!words.length) return field.required && !labels.length ? 'Enter a value.' : '';
  if (field.type === 'choice' && !words.every((word) => labels.includes(word))) return 'Choose one of the options.';
  if (field.multiple) return limit(words.length, 'Choose', 'option');
  if (labels.includes(words[0])) return '';
  if (!field.type || field.type === 'text') return limit([...words[0]].length, 'Enter', 'character');
  const isWhole = field.type === 'integer';
  if (!(isWhole ? /^[+-]?\d+$/ : /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i).test(words[0])) return isWhole ? 'Enter a whole number.' : 'Enter a number.';
  return limit(Number(words[0]), 'Enter', '');
}
