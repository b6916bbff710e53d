// Whatever is asked of the user: one request at a time, in full, with its answers always in view.

import { clip, Facts, focusOnce, html, randomId, take, typed, useEffect, useLoaded, useRef, useState } from './base.js';
import { describe, post } from './connection.js';
import { hasDialog, toast, Waiting } from './dialogs.js';
import { Diff } from './diff.js';
import { MarkdownText } from './markdown.js';

const SCOPES = [['session', 'for this session'], ['project', 'for this project'], ['user', 'for all projects']];

export function InteractionView({ screen, ask: original, total }) {
  const [edited, setEdited] = useState(null); // the arguments as they were edited, and the request that makes of it
  const [step, setStep] = useState({ name: 'ask' });
  const [plan, setPlan] = useState(null);
  const [isMore, setMore] = useState(false);
  const [isAll, setAll] = useState(false);
  const [message, setMessage] = useState('');
  const [isBusy, setBusy] = useState(false);
  const panel = useRef(null);
  const body = useRef(null);
  const required = useRef(null);
  const may = screen.can('approve');
  const ask = edited?.request ?? original;
  const { kind, form, answers } = ask;
  const isForm = kind === 'questions' || kind === 'elicitation';
  const field = (name) => form.find((one) => one.name === name);

  // What is typed for the prompt must not answer: the request gets the keys once the prompt is empty and at rest.
  useEffect(() => {
    const timer = setInterval(() => {
      const active = document.activeElement;
      if (!may || !panel.current || screen.composer.current?.isInUse || hasDialog()) return;
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
      else if (answer.choice.startsWith('approve_new_session')) carryOut(screen, original.path, answer.role);
      else if (answer.choice.startsWith('approve')) screen.session.mode = 'edit_mode';
    } catch (error) {
      setMessage(describe(error));
      setBusy(false);
    }
  };

  const isSeen = () => {
    if (kind !== 'permission' || !required.current) return true;
    const view = body.current.getBoundingClientRect();
    if (required.current.getBoundingClientRect().bottom <= view.bottom + 4) return true;
    body.current.scrollTop += view.height * 0.85;
    setMessage('More below. Read the whole request before allowing it.');
    return false;
  };

  const goTo = (name, choice) => { setMessage(''); setStep({ name, choice }); };
  const back = () => { goTo('ask'); panel.current?.focus(); };
  const choose = (answer) => {
    const { key, step: next, fields, permission_mode: mode, role } = answer;
    if (key?.startsWith('allow') && !isSeen()) return;
    if (next === 'all') setAll(!isAll);
    else if (next) goTo(next, answer);
    else {
      give({
        choice: key, ...(mode && { permission_mode: mode }), ...(role && { role }), ...(plan !== null && fields?.includes('plan') && { plan }),
        ...(edited && key === 'allow_once' && { args: edited.args, summary: edited.summary }),
      });
    }
  };

  const onKeyDown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !may) return;
    if (event.key === 'Escape' && step.name !== 'ask') take(event, back);
    if (event.target.closest('input, textarea, select') || step.name !== 'ask') return;
    const answer = answers.find(({ keys }) => keys.includes(event.key));
    if (isForm || isBusy || (!answer && event.key !== 'm')) return;
    take(event, () => (answer ? choose(answer) : setMore(!isMore)));
  };

  return html`<section class="interaction" ref=${panel} tabindex="-1" role="region" aria-label="Request" data-kind=${kind} data-state=${step.name} onKeyDown=${onKeyDown}>
    <header>
      <h2 aria-live="assertive">${edited ? 'Edited call: ' : ''}${ask.title}</h2>
      ${total > 1 && html`<span class="chip" aria-label=${`1 of ${total} requests`}>1 of ${total}</span>`}
    </header>
    <div class="interaction-body" ref=${body} tabindex="0" role="group" aria-label="Details">
      ${isForm ? html`<${Form} ...${{ ask, give, isBusy, may }} />`
        : step.name === 'plan' ? html`<textarea class="mono" aria-label="Plan" rows="14" value=${plan ?? field('plan').value} onInput=${typed(setPlan)} ref=${focusOnce}></textarea>`
        : step.name === 'edit' ? html`<${EditStep} ...${{ screen, ask, edited, back }} done=${(made) => { setEdited(made.summary ? made : null); back(); }} />`
        : html`<${Details} ...${{ ask, required, isAll, plan }} />`}
    </div>
    <div class="danger-line">
      ${ask.danger && html`<span class="danger-tag" data-danger=${ask.danger}>${ask.danger_words}</span>`}
      ${ask.effect && html`<span>${ask.effect}</span>`}
      ${ask.sandbox && html`<span class="dim">${ask.sandbox}</span>`}
    </div>
    <p class="message warn" role="alert">${message}</p>
    ${!may ? html`<p class="viewing">Only a client that may approve can answer. Waiting for ${ask.may_answer === 'user' ? 'the user' : 'an answer'}.</p>`
      : isForm || step.name === 'edit' ? null
      : ['rule', 'text', 'note'].includes(step.name) ? html`<${AnswerStep} ...${{ ask, step, give, back, isBusy }} field=${field('text')} />`
      : step.name === 'plan' ? html`<div class="answers"><button class="primary" onClick=${back}>Use this plan</button><button onClick=${() => { setPlan(null); back(); }}>Discard the changes</button></div>`
      : html`<div class="answers" role="group" aria-label="Answers">
          ${answers.filter(({ rare }) => isMore || !rare).map((answer, at) => html`<${AnswerButton} key=${at} ...${answer} label=${isAll && answer.step === 'all' ? 'Show less' : answer.label} isBusy=${isBusy} run=${() => choose(answer)} />`)}
          ${answers.some(({ rare }) => rare) && html`<${AnswerButton} label=${isMore ? 'Fewer' : 'More…'} keys="m" run=${() => setMore(!isMore)} />`}
        </div>`}
  </section>`;
}

function AnswerButton({ label, about, keys: [name = ''], tone = '', isBusy, run }) {
  const isLetter = name.length === 1;
  return html`<button class=${tone} disabled=${isBusy} title=${about} aria-keyshortcuts=${isLetter ? name : undefined} onClick=${run}><span>${label}</span>${isLetter && html` <kbd aria-hidden="true">${name}</kbd>`}</button>`;
}

function Details({ ask, required, isAll, plan }) {
  const { details = [], warnings = [], args, rules } = ask;
  const cut = details.findIndex(({ kind }) => kind === 'diff' || kind === 'markdown');
  const count = cut < 0 ? details.length : cut;
  return html`
    <div ref=${required}>
      ${details.slice(0, count).map((one, at) => html`<${Detail} key=${at} ...${one} />`)}
      ${warnings.map((line) => html`<p class="warn" key=${line}>${line}</p>`)}
    </div>
    ${isAll && args && html`<${Facts} rows=${args.map(([name, value]) => [name, html`<pre class="quote">${value}</pre>`])} />
      ${rules.length > 0 && html`<p class="dim">Rules you can save:</p><pre class="quote">${rules.join('\n')}</pre>`}`}
    ${details.slice(count).map((one, at) => html`<${Detail} key=${at} ...${one} text=${one.kind === 'markdown' ? plan ?? one.text : one.text} />`)}`;
}

function Detail({ kind, text, heading }) {
  const shown = kind === 'quote' ? html`<pre class="quote">${text}</pre>`
    : kind === 'diff' ? html`<${Diff} text=${text} whole=${true} showPaths=${true} />`
    : kind === 'markdown' ? html`<${MarkdownText} key=${text.length} text=${text} />` : html`<p class="dim">${text}</p>`;
  return heading ? [html`<p class="dim">${heading}</p>`, shown] : shown;
}

// A rule to save, a reason or a note for the model.
function AnswerStep({ ask: { rules, has_run: hasRun }, step: { name, choice }, field, give, back, isBusy }) {
  const isRule = name === 'rule';
  const isNote = name === 'note';
  const [text, setText] = useState('');
  const [rule, setRule] = useState(rules[0] ?? '');
  const [scope, setScope] = useState(choice.scope);
  const words = text.trim();
  const send = () => {
    if (isNote) give({ choice: choice.key }, words);
    else if (isRule ? rule.trim() : words || !choice.asks) give({ choice: choice.key, text: words, ...(isRule && { rule: rule.trim(), scope }) });
  };
  const option = (group, value, chosen, choose, shown) => html`<label class="option" key=${value}><input type="radio" name=${group} checked=${value === chosen} onChange=${() => choose(value)} />${shown}</label>`;
  return html`<form class="step stack" onSubmit=${send}>
    ${isRule && html`
      ${rules.length > 1 && html`<fieldset><legend>Rules that cover this, the narrowest first</legend>${rules.map((one) => option('rule', one, rule, setRule, html`<code>${one}</code>`))}</fieldset>`}
      <label>${choice.key.startsWith('allow') ? 'Allow' : 'Deny'} and save this rule<input class="mono" value=${rule} ref=${focusOnce} onInput=${typed(setRule)} /></label>
      <fieldset class="inline"><legend>Save it</legend>${SCOPES.map(([value, shown]) => option('scope', value, scope, setScope, shown))}</fieldset>`}
    ${(!isRule || choice.fields.includes('text')) && html`<label>${isNote ? 'Note for the model, sent with the result' : field.label}${isRule && ' (optional)'}
      <textarea rows=${isRule ? 1 : 2} ref=${isRule ? undefined : focusOnce} value=${text} placeholder=${field.text ?? ''} onInput=${typed(setText)}
        onKeyDown=${(event) => { if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) take(event, send); }}></textarea></label>`}
    <div class="buttons"><button onClick=${back}>Back</button><button class="primary" disabled=${isBusy || (choice.asks === 'text' && !words)}>${
      isRule ? 'Save rule' : choice.asks ? 'Send' : isNote ? (hasRun ? 'Keep' : 'Allow') : hasRun ? 'Discard' : 'Deny'}</button></div>
  </form>`;
}

// One field for each argument. The server makes texts of them, and the changed request of the texts.
function EditStep({ screen, ask, edited, done, back }) {
  const [texts, setTexts] = useState(edited?.texts ?? {});
  const [problem, setProblem] = useState('');
  const edit = () => post(`${screen.session.path}/edit`, { id: ask.id, texts });
  const [found, error] = useLoaded(edit, []);
  const save = () => {
    edit().then((made) => {
      if (!made.summary) toast('No changes.');
      done({ ...made, texts });
    }, (failure) => setProblem(describe(failure)));
  };
  if (!found) return html`<${Waiting} error=${error} />`;
  return html`<form class="step stack" aria-label="Edit the call" onSubmit=${save}>
    ${found.fields.map(([name, shown, text], at) => html`<label key=${name}><span>${shown}</span>
      <textarea class="mono" rows=${Math.min((texts[name] ?? text).split('\n').length, 14)} value=${texts[name] ?? text} ref=${at === 0 ? focusOnce : undefined}
        onInput=${(event) => setTexts({ ...texts, [name]: event.target.value })} onKeyDown=${(event) => { if (event.key === 's' && event.ctrlKey) take(event, save); }}></textarea></label>`)}
    <p class="warn" role="alert">${problem}</p>
    <div class="buttons"><button onClick=${back}>Back</button><button class="primary">Use this</button></div>
  </form>`;
}

// A plan that goes on in a session of its own: once this turn has ended.
async function carryOut(screen, plan, role = '') {
  for (let waited = 0; screen.state.executing && waited < 600; waited++) await new Promise((done) => setTimeout(done, 100));
  screen.run(`/execute "${plan}" ${role}`);
}

// Questions and what an MCP server asks for: options, own words, numbers. The browser checks their limits.
function Form({ ask: { form, answers }, give, isBusy, may }) {
  const [given, setGiven] = useState(() => form.map(({ value }) => ({ picked: [], own: String(value ?? '') })));
  const change = (at, made) => setGiven(given.map((one, other) => (other === at ? { ...one, ...made } : one)));
  const send = () => {
    give({ choice: 'answer', answers: given.map(({ picked, own }) => [...picked, own.trim()].filter(Boolean)) });
  };
  return html`<form class="form stack" onSubmit=${send}>
    ${form.map((field, at) => html`<${Field} key=${at} ...${field} ...${given[at]} may=${may} change=${(made) => change(at, made)} />`)}
    ${may && html`<div class="buttons">${answers.some(({ key }) => key === 'cancel') && html`<button disabled=${isBusy} onClick=${() => give({ choice: 'cancel' })}>${form.length > 1 ? 'Cancel all' : 'Cancel'}</button>`}
      <button class="primary" disabled=${isBusy}>Answer</button></div>`}
  </form>`;
}

function Field({ label, text, type, options, multiple, required, minimum, maximum, limits, picked, own, may, change }) {
  const [id] = useState(randomId);
  const toggle = (value) => change(!multiple ? { picked: [value], own: '' }
    : { picked: picked.includes(value) ? picked.filter((one) => one !== value) : [...picked, value] });
  const name = label || text;
  const isNumber = type === 'integer' || type === 'number';
  const shared = {
    value: own, dir: 'auto', required: required && !options.length, 'aria-label': options.length ? `Other answer: ${clip(name, 60)}` : name,
    onInput: ({ target }) => change({ own: target.value, ...(target.value && !multiple && { picked: [] }) }),
    ...(isNumber ? { min: minimum, max: maximum } : !multiple && { minlength: minimum, maxlength: maximum }),
  };
  return html`<fieldset disabled=${!may}>
    <legend>${name}${required && html`<span class="dim"> (required)</span>`}</legend>
    ${label && text && html`<p class="question">${text}</p>`}
    ${options.map((option, at) => html`<label class="option" key=${option.value}>
      <input type=${multiple ? 'checkbox' : 'radio'} name=${id} checked=${picked.includes(option.value)} onChange=${() => toggle(option.value)} />
      <span><span>${option.label}</span>${at === 0 && !multiple && html` <span class="dim">(default)</span>`}${option.detail && html`<span class="detail">${option.detail}</span>`}</span></label>`)}
    ${type === 'choice' && options.length ? null : isNumber ? html`<input type="number" step=${type === 'integer' ? 1 : 'any'} ...${shared} />`
      : options.length || (maximum > 0 && maximum <= 200) ? html`<input placeholder=${options.length ? 'Other…' : ''} ...${shared} />` : html`<textarea rows="2" ...${shared}></textarea>`}
    ${limits && html`<p class="dim">${limits}</p>`}
  </fieldset>`;
}
