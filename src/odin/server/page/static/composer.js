// Where prompts are written: drafts, history, completion, images, sending and steering.

import { clip, html, MODES, nextMode, randomId, take, useEffect, useLayoutEffect, useMedia, useRef, useState } from './base.js';
import { get } from './connection.js';
import { pick, toast, toastError } from './dialogs.js';

const IMAGE_TYPES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const MOST_BYTES = 4_750_000;
const MOST_IMAGES = 5;
const LONG_SIDE = 2_000;

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
  const { current: past } = useRef({ at: -1, list: null, lastEscape: 0, lastTyped: 0, request: 0, isAsking: false });
  const isTouch = useMedia('(pointer: coarse)');
  const isNarrow = useMedia('(max-width: 560px)');
  const isWorking = Boolean(state?.executing);

  const change = (value) => {
    setText(value);
    if (!edited) session.draft = value;
  };
  const write = (value, cursor = value.length) => {
    change(value);
    requestAnimationFrame(() => input.current?.setSelectionRange(cursor, cursor));
  };
  const breakLine = () => {
    const { selectionStart, selectionEnd } = input.current;
    write(`${text.slice(0, selectionStart)}\n${text.slice(selectionEnd)}`, selectionStart + 1);
  };

  const fit = () => {
    const node = input.current;
    if (!node) return;
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
    if (!isTouch && document.activeElement === document.body) input.current.focus();
    return () => observer.disconnect();
  }, []);

  controls.current = {
    focus: () => input.current.focus(),
    get isInUse() { return document.activeElement === input.current && (input.current.value !== '' || Date.now() - past.lastTyped < 1000); },
    setText: (value) => { write(value); input.current.focus(); },
    edit: (prompt) => {
      setEdited({ prompt, draft: edited?.draft ?? text });
      setText(prompt.display_text || prompt.text);
      input.current.focus();
    },
  };

  const leaveEdit = () => {
    setText(edited.draft);
    setEdited(null);
  };
  const send = async (isSteering = false, line = text) => {
    const words = line.trim();
    if (edited) {
      if (!words) return;
      leaveEdit();
      const done = await screen.act({ type: 'ChangePrompt', id: edited.prompt.id, text: words, agent: session.agent });
      if (!done) toast('The prompt has started already; nothing was changed.', 'warn');
      return;
    }
    if (!words && !images.length) return;
    if (past.list && words) past.list = [words, ...past.list.filter((one) => one !== words)];
    past.at = -1;
    change('');
    setImages([]);
    closePopup();
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

  const add = async (list) => {
    const found = [...list].filter(({ type }) => type.startsWith('image/'));
    const room = MOST_IMAGES - images.length;
    if (!found.length) return false;
    if (state?.sees_images === false) toast('This model does not see images.', 'warn');
    if (found.length > room) toast(`A prompt has at most ${MOST_IMAGES} images.`, 'warn');
    for (const file of found.slice(0, room)) {
      try {
        const image = await readImage(file);
        setImages((now) => [...now, image]);
      } catch {
        toast(`${file.name || 'The image'} cannot be read.`, 'error');
      }
    }
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
    const aborter = new AbortController();
    const onFiles = (name, run) => addEventListener(name, (event) => {
      if (!event.dataTransfer?.types.includes('Files')) return;
      event.preventDefault();
      run(event);
    }, { signal: aborter.signal });
    onFiles('dragover', () => setDropping(true));
    onFiles('dragleave', (event) => !event.relatedTarget && setDropping(false));
    onFiles('drop', async (event) => {
      setDropping(false);
      if (!await add(event.dataTransfer.files)) toast('Only images can be dropped here. Mention files of the project with @.', 'warn');
    });
    return () => aborter.abort();
  });

  // Also a popup that is still to come.
  const closePopup = () => { past.request++; past.isAsking = false; setPopup(null); };
  const complete = async (value, cursor) => {
    const mine = ++past.request;
    const start = value.lastIndexOf('\n', cursor - 1) + 1;
    const [line] = value.slice(start).split('\n');
    const column = cursor - start;
    const isWanted = !edited && ((start === 0 && line.startsWith('/')) || /(^|\s)@\S*$/.test(line.slice(0, column)));
    past.isAsking = isWanted;
    const found = isWanted ? await get(`${session.path}/complete`, { line, column: String(column), first: String(start === 0) }).catch(() => null) : null;
    if (mine !== past.request) return;
    past.isAsking = false;
    setPopup((now) => {
      if (!found?.items.length) return null;
      const kept = now?.isMoved ? found.items.findIndex((item) => item.label === now.items[now.at].label) : -1;
      return { ...found, of: value, start: start + found.start, end: start + found.end, at: Math.max(kept, 0), isMoved: kept >= 0 };
    });
  };
  // The suggestions may still be those of the text before; then the word has grown or shrunk.
  const wordEnd = () => popup.end + text.length - popup.of.length;
  const isFit = (item) => popup.of === text || item.insert.startsWith(text.slice(popup.start, wordEnd()));
  const choose = (item, isSending) => {
    const value = text.slice(0, popup.start) + item.insert + text.slice(wordEnd());
    const cursor = popup.start + item.insert.length;
    closePopup();
    if (isSending && item.is_runnable && !value.slice(cursor).trim()) {
      send(false, value);
      return;
    }
    write(value, cursor);
    if (item.continues) complete(value, cursor);
  };

  const loadHistory = async () => {
    past.list ??= await get(`${session.path}/prompts`).catch(() => []);
    return past.list;
  };
  const recall = async (by) => {
    const list = await loadHistory();
    const at = Math.max(-1, Math.min(past.at + by, list.length - 1));
    if (at === past.at) return;
    past.at = at;
    write(list[at] ?? '');
  };
  const searchHistory = async () => {
    const found = await pick('History', () => loadHistory().then((list) => list.map((one) => ({ label: clip(one, 300), value: one }))), { empty: 'No prompts.', placeholder: 'Search the prompt history' });
    if (found) write(found);
    input.current?.focus();
  };

  const onInput = ({ target: { value, selectionStart } }) => {
    past.at = -1;
    past.lastTyped = Date.now();
    change(value);
    complete(value, selectionStart);
  };

  // Returns what a key does; nothing if it is for others.
  const findAction = ({ key, shiftKey, altKey, isCtrl }) => {
    const isPlain = !shiftKey && !altKey && !isCtrl;
    if (popup) {
      const by = { ArrowDown: 1, ArrowUp: -1 }[key] ?? (isCtrl && { n: 1, p: -1 }[key]);
      if (by) return () => setPopup({ ...popup, at: (popup.at + by + popup.items.length) % popup.items.length, isMoved: true });
      if (isPlain && (key === 'Tab' || key === 'Enter') && isFit(popup.items[popup.at])) return () => choose(popup.items[popup.at], key === 'Enter');
    }
    if (key === 'Escape' && (popup || past.isAsking)) return closePopup;
    if (key === 'Tab' && isPlain && state?.interactions.length) return () => document.querySelector('.interaction').focus();
    if (isCtrl && (key === 'Enter' || key === 's')) return () => send(true);
    if ((key === 'Enter' && altKey) || (isCtrl && key === 'j')) return breakLine;
    if (key === 'Enter' && !shiftKey) return () => (text.endsWith('\\') && input.current.selectionStart === text.length ? write(`${text.slice(0, -1)}\n`) : send());
    if (isCtrl && key === 'r') return searchHistory;
    const isRecalled = past.at >= 0;
    if (key === 'ArrowUp' && isPlain && !text && !isRecalled && state?.queue.length) return () => controls.current.edit(state.queue.at(-1));
    if (key === 'ArrowUp' && isPlain && (!text || isRecalled)) return () => recall(1);
    if (key === 'ArrowDown' && isPlain && isRecalled) return () => recall(-1);
    if (key === 'Escape' && edited) return leaveEdit;
    if (key === 'Escape' && !isWorking && !text) {
      return () => {
        if (Date.now() - past.lastEscape < 600) screen.run('/rewind');
        past.lastEscape = Date.now();
      };
    }
    return null;
  };
  const onKeyDown = (event) => {
    const { key, shiftKey, altKey, ctrlKey, metaKey } = event;
    const action = !event.isComposing && findAction({ key, shiftKey, altKey, isCtrl: ctrlKey || metaKey });
    if (action) take(event, action);
  };

  const mode = MODES[session.mode] ?? 'edit';
  const hint = edited ? 'Enter saves · Esc cancels' : isWorking ? 'Enter queues · Ctrl+S steers the running turn' : '';
  const [verb, about] = edited ? ['Save', 'Save the queued prompt'] : isWorking ? ['Queue', 'Queue the prompt'] : ['Send', 'Send the prompt'];
  const fileInput = (ref, label, more) => html`<input ref=${ref} type="file" hidden accept="image/*" aria-label=${label} ...${more} onChange=${(event) => { add(event.target.files); event.target.value = ''; }} />`;
  return html`<form class="composer" data-mode=${mode} data-dropping=${isDropping} aria-label="Prompt" onSubmit=${() => send()}>
    ${popup && html`<${CompletionPopup} popup=${popup} choose=${(item) => { choose(item, false); input.current.focus(); }} />`}
    ${edited && html`<div class="editing"><span>Editing a queued prompt</span><button class="small" onClick=${leaveEdit}>Cancel</button></div>`}
    ${images.length > 0 && html`<ul class="thumbs" aria-label="Images">${images.map((image) => html`<li key=${image.id}><img src=${image.url} alt=${image.name} />
      <button class="icon" aria-label=${`Remove ${image.name}`} onClick=${() => setImages(images.filter((one) => one !== image))}>✕</button></li>`)}</ul>`}
    <textarea ref=${input} rows="1" value=${text} aria-label=${session.agent ? `Prompt to ${session.agent}` : 'Prompt'} enterkeyhint="send" autocomplete="off"
      aria-autocomplete="list" aria-controls=${popup ? 'completion' : undefined} aria-activedescendant=${popup ? `completion-${popup.at}` : undefined}
      placeholder=${isDropping ? 'Drop images here' : session.agent ? `Write to ${session.agent}` : isNarrow ? 'Ask, or type / @ !' : 'Ask, or type / for commands, @ for files, ! for your shell'}
      onInput=${onInput} onKeyDown=${onKeyDown} onPaste=${onPaste} onBlur=${() => setTimeout(() => document.activeElement !== input.current && closePopup(), 150)}></textarea>
    <div class="composer-bar">
      <button class="icon" aria-label="Add an image" onClick=${() => files.current.click()}>+</button>
      ${isTouch && !text && html`<button class="icon" aria-label="Take a photo" onClick=${() => camera.current.click()}>◉</button>`}
      <button class="chip mode" aria-label=${`Mode: ${mode}`} title="What Odin may do (F2)" onClick=${() => { session.mode = nextMode(session.mode); }}>${mode}</button>
      <span class="hint">${hint}</span>
      ${isTouch && text && html`<button class="icon" aria-label="Line break" onClick=${() => { breakLine(); input.current.focus(); }}>↵</button>`}
      ${isWorking && html`<button class="stop" aria-label="Stop" title="Esc" onClick=${screen.stop}><span class="square" aria-hidden="true"></span><span class="wide">Stop</span></button>`}
      ${isWorking && text.trim() && !edited && html`<button onClick=${() => send(true)}>Steer</button>`}
      <button class="primary send" disabled=${!text.trim() && !images.length} aria-label=${about}>${verb}</button>
    </div>
    ${fileInput(files, 'Images', { multiple: true })}${fileInput(camera, 'Photo', { capture: 'environment' })}
    <div class="unseen" role="status">${popup ? `${popup.items.length} suggestions` : ''}</div>
  </form>`;
}

function CompletionPopup({ popup, choose }) {
  const list = useRef(null);
  useEffect(() => list.current.children[popup.at]?.scrollIntoView({ block: 'nearest' }), [popup.at]);
  return html`<ul class="completion list" role="listbox" aria-label="Suggestions" id="completion" tabindex="0" ref=${list}>${popup.items.map((item, at) => html`
    <li key=${item.label + at} id=${`completion-${at}`} role="option" aria-selected=${at === popup.at} class=${at === popup.at ? 'here' : ''}
      onPointerDown=${(event) => event.preventDefault()} onClick=${() => choose(item)}>
      <span class="what"><b>${item.label}</b>${item.hint && html` <span class="dim">${item.hint}</span>`}</span>
      <span class="detail">${item.help}</span></li>`)}</ul>`;
}

// Returns an image that the server takes: of a known type and not too large.
async function readImage(file) {
  const isFit = IMAGE_TYPES.includes(file.type) && file.size <= MOST_BYTES;
  const blob = isFit ? file : await shrink(file);
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = reject;
    reader.readAsDataURL(blob);
  });
  const name = file.name || 'image.png';
  return { id: randomId(), name: isFit ? name : `${name.replace(/\.\w+$/, '')}.jpg`, data: url.slice(url.indexOf(',') + 1), media_type: blob.type, url };
}

async function shrink(file) {
  const bitmap = await createImageBitmap(file);
  for (let side = LONG_SIDE; ; side /= 1.5) {
    const scale = Math.min(1, side / Math.max(bitmap.width, bitmap.height));
    const canvas = new OffscreenCanvas(bitmap.width * scale, bitmap.height * scale);
    canvas.getContext('2d').drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    const blob = await canvas.convertToBlob({ type: 'image/jpeg', quality: 0.85 });
    if (blob.size <= MOST_BYTES) return blob;
  }
}
