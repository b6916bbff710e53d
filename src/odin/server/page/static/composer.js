// Where prompts are written: drafts, history, completion, images, sending and steering.

import { html, MODES, randomId, useEffect, useLayoutEffect, useMedia, useRef, useState } from './base.js';
import { get } from './connection.js';
import { pick, toast, toastError } from './dialogs.js';

const IMAGE_TYPES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const MOST_BYTES = 5_000_000;
const MOST_IMAGES = 5;
const LONG_SIDE = 2_000;
const MODE_NAMES = Object.keys(MODES);

export function Composer({ screen, controls }) {
  const { session, state } = screen;
  const [text, setText] = useState(session.draft);
  const [images, setImages] = useState([]);
  const [edited, setEdited] = useState(null); // the queued prompt that is edited, and the draft before
  const [popup, setPopup] = useState(null);
  const [isDropping, setDropping] = useState(false);
  const input = useRef(null);
  const files = useRef(null);
  const camera = useRef(null);
  const past = useRef({ at: -1, list: null, lastEscape: 0, lastTyped: 0 });
  const isTouch = useMedia('(pointer: coarse)');
  const isNarrow = useMedia('(max-width: 560px)');
  const isWorking = Boolean(state?.executing);

  const write = (value, cursor = value.length) => {
    setText(value);
    if (!edited) session.draft = value;
    requestAnimationFrame(() => input.current?.setSelectionRange(cursor, cursor));
  };

  const fit = () => {
    const node = input.current;
    node.style.height = 'auto';
    node.style.height = `${node.scrollHeight + 2}px`;
  };
  useLayoutEffect(fit, [text]);
  useEffect(() => {
    let width = 0;
    const observer = new ResizeObserver(([{ contentRect }]) => {
      if (contentRect.width !== width) fit();
      width = contentRect.width;
    });
    observer.observe(input.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (!isTouch && (document.activeElement === document.body || !document.activeElement)) input.current.focus();
  }, []);

  controls.current = {
    focus: () => input.current?.focus(),
    get isInUse() { return document.activeElement === input.current && (input.current.value !== '' || Date.now() - past.current.lastTyped < 1000); },
    get text() { return input.current?.value ?? ''; },
    setText: (value) => { write(value); input.current.focus(); },
    searchHistory: () => searchHistory(),
    edit: (prompt) => {
      setEdited({ prompt, draft: edited?.draft ?? text });
      setText(prompt.display_text || prompt.text);
      input.current.focus();
    },
  };

  // --- sending ---

  const leaveEdit = () => {
    setText(edited.draft);
    setEdited(null);
  };
  const clear = () => {
    past.current.at = -1;
    setText('');
    setImages([]);
    setPopup(null);
    session.draft = '';
  };
  const send = async (isSteering = false, line = text) => {
    const words = line.trim();
    if (edited) {
      if (!words) return;
      const { prompt } = edited;
      leaveEdit();
      const done = await screen.act({ type: 'ChangePrompt', id: prompt.id, text: words, agent: session.agent });
      if (!done) toast('The prompt has started already; nothing was changed.', 'warn');
      return;
    }
    if (!words && !images.length) return;
    if (past.current.list && words) past.current.list = [words, ...past.current.list.filter((one) => one !== words)];
    clear();
    if (words.startsWith('/') && !isSteering && await screen.run(words)) return;
    screen.transcript.current?.toEnd();
    try {
      if (words.startsWith('!') && words.length > 1) {
        await session.submit({ type: 'RunUserShell', id: randomId(), command: words.slice(1).trim(), agent: session.agent });
      } else if (/^#[^#\n]+$/.test(words) && screen.can('approve')) {
        await session.submit({ type: 'ChangeMemory', text: words.slice(1).trim() });
        toast('Remembered for this project.');
      } else {
        await session.submit({
          type: 'Prompt', id: randomId(), text: words, mode: session.mode, agent: session.agent,
          ...(isSteering && isWorking && { delivery: 'steer' }),
          ...(images.length && { attachments: images.map(({ name, data, media_type }) => ({ path: name, data, media_type, name })) }),
        });
      }
    } catch (error) {
      toastError(error);
      // What could not be sent comes back.
      if (!input.current?.value) {
        write(line);
        setImages(images);
      }
    }
  };

  // --- images ---

  const add = async (list) => {
    const found = [...list].filter(({ type }) => type.startsWith('image/'));
    if (!found.length) return false;
    if (state && state.sees_images === false) toast('This model does not see images.', 'warn');
    const made = [];
    for (const file of found.slice(0, MOST_IMAGES - images.length)) {
      try {
        made.push(await readImage(file));
      } catch {
        toast(`${file.name || 'The image'} cannot be read.`, 'error');
      }
    }
    if (found.length > MOST_IMAGES - images.length) toast(`A prompt has at most ${MOST_IMAGES} images.`, 'warn');
    setImages((now) => [...now, ...made]);
    input.current.focus();
    return true;
  };
  const onPaste = (event) => {
    const pasted = [...event.clipboardData.files];
    if (pasted.some(({ type }) => type.startsWith('image/')) && !event.clipboardData.getData('text/plain')) {
      event.preventDefault();
      add(pasted);
    }
  };
  useEffect(() => {
    const hasFiles = (event) => event.dataTransfer?.types.includes('Files');
    const over = (event) => { if (hasFiles(event)) { event.preventDefault(); setDropping(true); } };
    const leave = (event) => { if (!event.relatedTarget) setDropping(false); };
    const drop = async (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setDropping(false);
      if (!await add(event.dataTransfer.files)) toast('Only images can be dropped here. Mention files of the project with @.', 'warn');
    };
    addEventListener('dragover', over);
    addEventListener('dragleave', leave);
    addEventListener('drop', drop);
    return () => { removeEventListener('dragover', over); removeEventListener('dragleave', leave); removeEventListener('drop', drop); };
  });

  // --- completion ---

  const request = useRef(0);
  const complete = async (value, cursor) => {
    const mine = ++request.current;
    const start = value.lastIndexOf('\n', cursor - 1) + 1;
    const end = value.indexOf('\n', cursor) < 0 ? value.length : value.indexOf('\n', cursor);
    const line = value.slice(start, end);
    const column = cursor - start;
    const isWanted = (start === 0 && line.startsWith('/')) || /(^|\s)@\S*$/.test(line.slice(0, column));
    if (!isWanted || edited) {
      setPopup(null);
      return;
    }
    try {
      const found = await get(`${session.path}/complete`, { line, column: String(column), first: String(start === 0), agent: session.agent });
      if (mine !== request.current || input.current?.value !== value) return;
      setPopup(found.items.length ? { ...found, start: start + found.start, end: start + found.end, at: 0 } : null);
    } catch {
      setPopup(null);
    }
  };
  const choose = (item, isSending) => {
    const value = text.slice(0, popup.start) + item.insert + text.slice(popup.end);
    const cursor = popup.start + item.insert.length;
    setPopup(null);
    if (isSending && item.is_runnable && !value.slice(cursor).trim()) {
      send(false, value);
      return;
    }
    write(value, cursor);
    if (item.continues) complete(value, cursor);
  };

  // --- history ---

  const loadHistory = async () => {
    past.current.list ??= await get(`${session.path}/prompts`).catch(() => []);
    return past.current.list;
  };
  const recall = async (by) => {
    const list = await loadHistory();
    const at = Math.max(-1, Math.min(past.current.at + by, list.length - 1));
    if (at === past.current.at) return;
    past.current.at = at;
    write(at < 0 ? '' : list[at]);
  };
  const searchHistory = async () => {
    const list = await loadHistory();
    const found = await pick('History', list.map((one) => ({ label: one.length > 300 ? `${one.slice(0, 300)}…` : one, value: one })), { empty: 'No prompts.', placeholder: 'Search the prompt history' });
    if (found) write(found);
    input.current?.focus();
  };

  const onInput = (event) => {
    const { value, selectionStart } = event.target;
    past.current.at = -1;
    past.current.lastTyped = Date.now();
    setText(value);
    if (!edited) session.draft = value;
    complete(value, selectionStart);
  };

  const onKeyDown = (event) => {
    if (event.isComposing) return;
    const { key } = event;
    const isCtrl = event.ctrlKey || event.metaKey;
    const stop = () => { event.preventDefault(); event.stopPropagation(); };
    if (popup) {
      const move = { ArrowDown: 1, ArrowUp: -1 }[key] ?? (isCtrl && { n: 1, p: -1 }[key]);
      if (move) {
        stop();
        setPopup({ ...popup, at: (popup.at + move + popup.items.length) % popup.items.length });
        return;
      }
      if ((key === 'Tab' && !event.shiftKey) || (key === 'Enter' && !event.shiftKey && !event.altKey && !isCtrl)) {
        stop();
        choose(popup.items[popup.at], key === 'Enter');
        return;
      }
      if (key === 'Escape') {
        stop();
        request.current++;
        setPopup(null);
        return;
      }
    }
    if (key === 'Tab' && !event.shiftKey && !isCtrl && state?.interactions.length) {
      stop();
      document.querySelector('.interaction').focus();
    } else if ((key === 'Enter' && isCtrl) || (isCtrl && key === 's')) {
      stop();
      send(true);
    } else if ((key === 'Enter' && event.altKey) || (isCtrl && key === 'j')) {
      stop();
      const { selectionStart, selectionEnd } = input.current;
      write(`${text.slice(0, selectionStart)}\n${text.slice(selectionEnd)}`, selectionStart + 1);
    } else if (key === 'Enter' && !event.shiftKey) {
      stop();
      const { selectionStart } = input.current;
      if (text[selectionStart - 1] === '\\' && selectionStart === text.length) write(`${text.slice(0, -1)}\n`);
      else send();
    } else if (isCtrl && key === 'r') {
      stop();
      searchHistory();
    } else if ((key === 'ArrowUp' || key === 'ArrowDown') && !isCtrl && !event.altKey && !event.shiftKey && (!text || past.current.at >= 0)) {
      if (key === 'ArrowUp' && !text && state?.queue?.length && past.current.at < 0) {
        stop();
        controls.current.edit(state.queue.at(-1));
        return;
      }
      if (!text && key === 'ArrowDown') return;
      stop();
      recall(key === 'ArrowUp' ? 1 : -1);
    } else if (key === 'Escape' && edited) {
      stop();
      leaveEdit();
    } else if (key === 'Escape' && !isWorking && !text) {
      stop();
      if (Date.now() - past.current.lastEscape < 600) screen.run('/rewind');
      past.current.lastEscape = Date.now();
    }
  };

  const cycleMode = () => { session.mode = MODE_NAMES[(MODE_NAMES.indexOf(session.mode) + 1) % 3]; };
  const listId = 'completion';
  const hint = edited ? 'Enter saves · Esc cancels' : isWorking ? 'Enter queues · Ctrl+S steers the running turn' : '';
  const mode = MODES[session.mode] ?? 'edit';
  return html`<form class="composer" data-mode=${mode} data-dropping=${isDropping} aria-label="Prompt" onSubmit=${(event) => { event.preventDefault(); send(); }}>
    ${popup ? html`<${CompletionPopup} id=${listId} popup=${popup} choose=${(item) => { choose(item, false); input.current.focus(); }} />` : null}
    ${edited ? html`<div class="editing"><span>Editing a queued prompt</span><button class="small" onClick=${leaveEdit}>Cancel</button></div>` : null}
    ${images.length ? html`<ul class="thumbs" aria-label="Images">${images.map((image, at) => html`<li key=${image.url}><img src=${image.url} alt=${image.name} />
      <button class="icon" aria-label=${`Remove ${image.name}`} onClick=${() => setImages(images.filter((_, other) => other !== at))}>✕</button></li>`)}</ul>` : null}
    <textarea ref=${input} rows="1" value=${text} aria-label=${session.agent ? `Prompt to ${session.agent}` : 'Prompt'} enterkeyhint="send" autocomplete="off" autocapitalize="sentences"
      aria-autocomplete="list" aria-controls=${popup ? listId : undefined} aria-activedescendant=${popup ? `${listId}-${popup.at}` : undefined}
      placeholder=${session.agent ? `Write to ${session.agent}` : isNarrow ? 'Ask, or type / @ !' : 'Ask, or type / for commands, @ for files, ! for your shell'}
      onInput=${onInput} onKeyDown=${onKeyDown} onPaste=${onPaste} onBlur=${() => setTimeout(() => setPopup(null), 150)}></textarea>
    <div class="composer-bar">
      <button class="icon" aria-label="Add an image" onClick=${() => files.current.click()}>+</button>
      ${isTouch && !text ? html`<button class="icon camera" aria-label="Take a photo" onClick=${() => camera.current.click()}>◉</button>` : null}
      <button class="chip mode" aria-label=${`Mode: ${mode}`} title="What Odin may do (F2)" onClick=${cycleMode}>${mode}</button>
      ${!session.agent && screen.can('approve') && state ? html`<button class="chip" aria-label=${`Role: ${state.role || 'builder'}`} title="Who works (Alt+R)" onClick=${() => screen.run('/role')}>${state.role || 'builder'}</button>` : null}
      <span class="hint">${hint}</span>
      ${isTouch && text ? html`<button class="icon" aria-label="Line break" onClick=${() => { write(`${text}\n`); input.current.focus(); }}>↵</button>` : null}
      ${isWorking ? html`<button class="stop" aria-label="Stop" title="Esc" onClick=${screen.stop}><span class="square" aria-hidden="true"></span><span class="wide">Stop</span></button>` : null}
      ${isWorking && text.trim() && !edited ? html`<button class="wide-button" onClick=${() => send(true)}>Steer</button>` : null}
      <button class="primary send" disabled=${!text.trim() && !images.length} aria-label=${edited ? 'Save the queued prompt' : isWorking ? 'Queue the prompt' : 'Send the prompt'}>${edited ? 'Save' : isWorking ? 'Queue' : 'Send'}</button>
    </div>
    <input ref=${files} type="file" hidden accept="image/*" multiple aria-label="Images" onChange=${(event) => { add(event.target.files); event.target.value = ''; }} />
    <input ref=${camera} type="file" hidden accept="image/*" capture="environment" aria-label="Photo" onChange=${(event) => { add(event.target.files); event.target.value = ''; }} />
    ${isDropping ? html`<div class="dropping" aria-hidden="true">Drop images here</div>` : null}
    <div class="unseen" role="status">${popup ? `${popup.items.length} suggestions` : ''}</div>
  </form>`;
}

function CompletionPopup({ id, popup, choose }) {
  const list = useRef(null);
  useEffect(() => list.current.children[popup.at]?.scrollIntoView({ block: 'nearest' }), [popup.at]);
  return html`<ul class="completion list" role="listbox" aria-label="Suggestions" id=${id} ref=${list}>${popup.items.map((item, at) => html`
    <li key=${item.label + at} id=${`${id}-${at}`} role="option" aria-selected=${at === popup.at} class=${at === popup.at ? 'here' : ''} title=${item.help || undefined}
      onPointerDown=${(event) => event.preventDefault()} onClick=${() => choose(item)}>
      <span class="what"><b>${item.label}</b>${item.hint ? html` <span class="dim" dir="auto">${item.hint}</span>` : null}</span>
      <span class="detail" dir="auto">${item.help}</span></li>`)}</ul>`;
}

// Returns an image that the server takes: of a known type and not too large.
async function readImage(file) {
  let blob = file;
  if (!IMAGE_TYPES.includes(file.type) || file.size > MOST_BYTES * 0.95) blob = await shrink(file);
  const data = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(',') + 1));
    reader.onerror = reject;
    reader.readAsDataURL(blob);
  });
  const name = blob === file ? file.name || 'image.png' : `${(file.name || 'image').replace(/\.\w+$/, '')}.jpg`;
  return { name, data, media_type: blob.type, url: URL.createObjectURL(blob) };
}

async function shrink(file) {
  const bitmap = await createImageBitmap(file);
  for (let side = LONG_SIDE; ; side /= 1.5) {
    const scale = Math.min(1, side / Math.max(bitmap.width, bitmap.height));
    const canvas = document.createElement('canvas');
    canvas.width = Math.round(bitmap.width * scale);
    canvas.height = Math.round(bitmap.height * scale);
    canvas.getContext('2d').drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, 'image/jpeg', 0.85));
    if (blob.size < MOST_BYTES * 0.95) return blob;
  }
}
