// The conversation: a window of blocks that follows the end until the reader scrolls up.

import { html, plural, useEffect, useEvents, useLayoutEffect, useReducer, useRef, useState } from './base.js';
import { Block, readBlock } from './blocks.js';

const MOST = 600; // blocks in the page
const STEP = 150;
const START = 200;
const NEAR = 600; // pixels from an edge at which more is shown

export function Transcript({ session, controls, onEdit }) {
  useEvents(session, 'blocks', 'link');
  const view = useRef(null);
  const content = useRef(null);
  const [, again] = useReducer((number) => number + 1, 0);
  const [hasNew, setNew] = useState(false);
  const [search, setSearch] = useState(null);
  // `end` is null while the end is shown, else an index among all blocks, as `start` is.
  const place = useRef({ start: null, end: null, isStuck: true, anchor: null });
  const at = place.current;

  const last = session.last;
  const end = at.end === null ? last : Math.min(at.end, last);
  let start = at.start === null ? last - START : at.start;
  if (at.end === null && at.isStuck) start = Math.max(start, last - MOST);
  start = Math.max(start, session.first, end - MOST);
  if (at.start !== null) at.start = start;
  const shown = session.blocks.slice(start - session.first, end - session.first);

  const keepPlace = () => {
    const top = view.current.getBoundingClientRect().top;
    for (const node of content.current.children) {
      const box = node.getBoundingClientRect();
      if (box.bottom > top) {
        at.anchor = { key: node.dataset.key, top: box.top };
        return;
      }
    }
  };
  const findNode = (key) => content.current.querySelector(`[data-key="${CSS.escape(key)}"]`);

  useLayoutEffect(() => {
    if (!at.anchor) return;
    const node = findNode(at.anchor.key);
    if (node) view.current.scrollTop += node.getBoundingClientRect().top - at.anchor.top;
    at.anchor = null;
  });

  const showEarlier = () => {
    if (at.anchor || at.isBusy) return;
    if (start > session.first) {
      keepPlace();
      at.start = Math.max(start - STEP, session.first);
      at.end = end - at.start > MOST ? at.start + MOST : at.end;
      again();
    } else if (session.first > 0) {
      at.isBusy = true;
      keepPlace();
      const { anchor } = at;
      at.anchor = null;
      at.start = start;
      session.loadEarlier().then((isFound) => {
        at.isBusy = false;
        if (isFound) showEarlier();
        else at.anchor = anchor;
      }, () => { at.isBusy = false; });
    }
  };
  const showLater = () => {
    if (at.end === null || at.anchor) return;
    keepPlace();
    at.end = end + STEP;
    if (at.end >= last) at.end = null;
    at.start = Math.max(start, (at.end ?? last) - MOST);
    again();
  };
  const toEnd = () => {
    Object.assign(at, { start: null, end: null, isStuck: true, anchor: null });
    setNew(false);
    again();
    requestAnimationFrame(() => { if (view.current) view.current.scrollTop = view.current.scrollHeight; });
  };
  const toTop = async () => {
    while (session.first > 0 && await session.loadEarlier().catch(() => false)); // all of it
    Object.assign(at, { start: session.first, end: Math.min(session.first + START, session.last), isStuck: false, anchor: null });
    again();
    requestAnimationFrame(() => { view.current.scrollTop = 0; });
  };
  const show = (key) => {
    const index = session.blocks.findIndex((block) => block.key === key);
    if (index < 0) return;
    const all = session.first + index;
    at.isStuck = false;
    if (all < start || all >= end) {
      at.start = Math.max(all - 50, session.first);
      at.end = all + START >= last ? null : all + START;
      again();
    }
    requestAnimationFrame(() => {
      const node = findNode(key);
      node?.scrollIntoView({ block: 'nearest' });
      node?.focus({ preventScroll: true });
    });
  };

  useEffect(() => {
    // After any change of a size, also of a late image, the end stays in view.
    const observer = new ResizeObserver(() => {
      if (!view.current) return;
      if (at.isStuck) view.current.scrollTop = view.current.scrollHeight;
    });
    observer.observe(content.current);
    observer.observe(view.current);
    const off = session.on('content', () => setNew(!at.isStuck));
    return () => { observer.disconnect(); off(); };
  }, [session]);

  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = view.current;
    const below = scrollHeight - scrollTop - clientHeight;
    const wasStuck = at.isStuck;
    at.isStuck = at.end === null && below < 48;
    if (at.isStuck) setNew(false);
    if (wasStuck && !at.isStuck && at.start === null) at.start = start;
    if (at.isStuck && at.start !== null && last - at.start < START) at.start = null;
    if (scrollTop < NEAR) showEarlier();
    if (below < NEAR) showLater();
  };

  // --- card mode ---

  const focused = () => document.activeElement?.closest?.('[data-block]');
  const move = (by) => {
    const cards = [...content.current.children];
    const here = cards.indexOf(focused());
    const next = here < 0 ? cards.length - 1 : Math.max(0, Math.min(here + by, cards.length - 1));
    at.isStuck = false;
    cards[next]?.scrollIntoView({ block: 'nearest' });
    cards[next]?.focus({ preventScroll: true });
  };
  const look = () => move(0);
  const page = (by) => { view.current.scrollTop += by * view.current.clientHeight * 0.9; };
  const find = (words, by) => {
    const wanted = words.toLowerCase();
    const here = session.blocks.findIndex(({ key }) => key === focused()?.dataset.key);
    const total = session.blocks.length;
    for (let step = 1; wanted && step <= total; step++) {
      const block = session.blocks[(((here < 0 ? total : here) + by * step) % total + total) % total];
      if (readBlock(block).toLowerCase().includes(wanted)) return show(block.key);
    }
    return undefined;
  };
  controls.current = { toEnd, toTop, show, look, page, search: () => setSearch(search ?? '') };

  const onKeyDown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea')) return;
    const card = focused();
    const block = card && session.find(card.dataset.key);
    const isOnCard = event.target === card;
    const actions = {
      j: () => move(1), k: () => move(-1), g: toTop, G: toEnd, O: () => session.foldAll(!session.isFolded(session.blocks.at(-1) ?? {})),
      o: () => block && session.fold(block.key, !session.isFolded(block)),
      y: () => block && navigator.clipboard?.writeText(readBlock(block)),
      a: () => block?.kind === 'agent' && (location.hash = `#/s/${session.id}/${encodeURIComponent(block.key)}`),
      e: () => block?.kind === 'prompt' && onEdit?.(block),
      i: () => controls.write?.(), Escape: () => controls.write?.(), '/': () => setSearch(''),
      n: () => search && find(search, 1), N: () => search && find(search, -1),
      ...(isOnCard && { ArrowDown: () => move(1), ArrowUp: () => move(-1), Home: toTop, End: toEnd,
        Enter: () => session.fold(block.key, !session.isFolded(block)), ' ': () => session.fold(block.key, !session.isFolded(block)) }),
    };
    const action = actions[event.key];
    if (!action || (!card && ['o', 'y', 'a', 'e'].includes(event.key))) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  };

  const isEarlier = start > 0 && (start > session.first || session.first > 0);
  return html`<div class="transcript-area">
    <div class="transcript" ref=${view} role="region" aria-label="Conversation" tabindex="0" onScroll=${onScroll} onKeyDown=${onKeyDown}>
      ${isEarlier ? html`<button class="more earlier" onClick=${showEarlier}>Earlier</button>` : null}
      <div class="blocks" ref=${content}>${shown.map(({ key }) => html`<${Block} key=${key} keyName=${key} session=${session} />`)}</div>
    </div>
    ${search !== null ? html`<form class="search" role="search" onSubmit=${(event) => { event.preventDefault(); find(search, -1); }}
        onKeyDown=${(event) => { if (event.key === 'Escape') { event.stopPropagation(); setSearch(null); } }}>
      <input type="search" aria-label="Search the conversation" placeholder="Search the conversation" value=${search} ref=${focusOnce} onInput=${(event) => setSearch(event.target.value)} dir="auto" />
      <button aria-label="Previous match" onClick=${() => find(search, -1)}>↑</button>
      <button aria-label="Next match" onClick=${() => find(search, 1)}>↓</button>
      <button aria-label="Close the search" onClick=${() => setSearch(null)}>✕</button>
    </form>` : null}
    ${at.end !== null || hasNew ? html`<button class="new-below" onClick=${toEnd}>${hasNew ? 'New below' : plural(last - end, 'block')+' below'} ↓</button>` : null}
  </div>`;
}

function focusOnce(node) {
  if (node && !node.dataset.seen) {
    node.dataset.seen = '1';
    node.focus();
  }
}

// Says once what a screen reader should hear: that an answer ended, and its text.
export function Announcer({ session }) {
  const [words, setWords] = useState('');
  const seen = useRef({ live: new Set(), activity: '' });
  useEffect(() => session.on('flush', () => {
    const { live } = seen.current;
    for (const block of session.blocks.slice(-8)) {
      if (block.kind !== 'answer') continue;
      if (block.live) live.add(block.key);
      else if (live.delete(block.key)) setWords(block.text.slice(0, 2000));
    }
    const asked = session.state?.activity;
    if (asked && asked.text !== seen.current.activity && !asked.is_busy) setWords(asked.text);
    seen.current.activity = asked?.text ?? '';
  }), [session]);
  return html`<div class="unseen" role="status" aria-live="polite">${words}</div>`;
}
