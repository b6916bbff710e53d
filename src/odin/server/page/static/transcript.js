// The conversation: the loaded blocks, following the end until the reader scrolls up.

import { focusOnce, html, linkTo, take, typed, useEffect, useEvents, useLayoutEffect, useRef, useState } from './base.js';
import { Block, readBlock } from './blocks.js';

const NEAR = 600; // pixels from the top at which earlier blocks are loaded
const [MANY, FEW] = [1500, 400]; // blocks: of so many, these are kept while the end is shown

export function Transcript({ session, controls, onEdit }) {
  useEvents(session, 'blocks');
  const view = useRef(null);
  const content = useRef(null);
  const [isAway, setAway] = useState(false);
  const [hasNew, setNew] = useState(false);
  const [search, setSearch] = useState(null);
  const { current: at } = useRef({ isStuck: true, isBusy: false, anchor: null, nodes: new Map() });

  // The same vnode again is not compared again: only what is new costs time.
  const nodes = new Map();
  for (const { key } of session.blocks) {
    const id = nodes.has(key) ? `${key}+${nodes.size}` : key; // a prompt may be there twice
    nodes.set(id, at.nodes.get(id) ?? html`<${Block} key=${id} keyName=${key} session=${session} />`);
  }
  at.nodes = nodes;

  useLayoutEffect(() => {
    if (at.isTop && session.first === 0) view.current.scrollTop = at.isTop = at.anchor = 0;
    if (!at.anchor) return;
    view.current.scrollTop += at.anchor.node.getBoundingClientRect().top - at.anchor.top;
    at.anchor = null;
  });

  const showEarlier = () => {
    if (at.isBusy || session.first === 0) return;
    at.isBusy = true;
    session.loadEarlier(() => {
      const node = content.current?.firstElementChild;
      at.anchor = node && { node, top: node.getBoundingClientRect().top };
    }).catch(() => {}).finally(() => { at.isBusy = false; });
  };
  const follow = (isStuck) => {
    at.isStuck = isStuck;
    setAway(!isStuck);
    if (!isStuck) return;
    setNew(false);
    if (session.blocks.length > MANY) session.forgetEarlier(FEW);
  };
  const toEnd = () => {
    follow(true);
    view.current.scrollTop = view.current.scrollHeight;
  };
  const toTop = async () => {
    follow(false);
    at.isTop = true;
    while (session.first > 0 && await session.loadEarlier(undefined, 5000).catch(() => false)); // all of it
    view.current.scrollTop = 0;
    if (session.first) at.isTop = 0;
  };
  const goTo = (node) => {
    follow(false);
    node?.scrollIntoView({ block: 'nearest' });
    node?.focus({ preventScroll: true });
  };
  const show = (key) => requestAnimationFrame(() => goTo(content.current.querySelector(`[data-key="${CSS.escape(key)}"]`)));

  useEffect(() => {
    // After any change of a size, also of a late image, the end stays in view.
    const observer = new ResizeObserver(() => {
      if (!at.isStuck || !view.current) return;
      view.current.scrollTop = view.current.scrollHeight;
      at.last = view.current.scrollTop;
    });
    observer.observe(content.current);
    observer.observe(view.current);
    const off = session.on('content', () => (at.isStuck ? follow(true) : setNew(true)));
    return () => { observer.disconnect(); off(); controls.current = null; };
  }, [session]);

  const onScroll = () => {
    if (at.isTop || !view.current) return;
    const { scrollTop, scrollHeight, clientHeight } = view.current;
    // What changes its size scrolls, too; only who scrolls up leaves the end.
    follow(scrollHeight - scrollTop - clientHeight < 48 || (at.isStuck && scrollTop >= at.last));
    at.last = scrollTop;
    if (scrollTop < NEAR) showEarlier();
  };

  const focused = () => document.activeElement?.closest?.('[data-block]');
  const move = (by) => {
    const card = focused();
    const next = by > 0 ? card?.nextElementSibling : card?.previousElementSibling;
    goTo((by && next) || card || content.current.lastElementChild);
  };
  const page = (by) => { view.current.scrollTop += by * view.current.clientHeight * 0.9; };
  const find = (words, by) => {
    const { blocks } = session;
    const wanted = words.toLowerCase();
    const here = blocks.findIndex(({ key }) => key === focused()?.dataset.key);
    const from = here >= 0 ? here : by > 0 ? -1 : blocks.length;
    for (let step = 1; wanted && step <= blocks.length; step++) {
      const { [(from + by * step + blocks.length) % blocks.length]: block } = blocks;
      if (readBlock(block).toLowerCase().includes(wanted)) return show(block.key);
    }
    return undefined;
  };
  controls.current = { toEnd, toTop, show, look: () => move(0), page, search: () => setSearch(search ?? '') };

  const onKeyDown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea')) return;
    const card = focused();
    const block = card && session.find(card.dataset.key);
    const fold = () => session.fold(block.key, !session.isFolded(block));
    const [next, previous] = [() => move(1), () => move(-1)];
    const actions = {
      j: next, k: previous, g: toTop, G: toEnd, i: controls.write, Escape: controls.write, '/': () => setSearch(''),
      O: () => session.foldAll(!session.isFolded(session.blocks.at(-1) ?? {})), n: () => search && find(search, 1), N: () => search && find(search, -1),
      ...(block && {
        o: fold, y: () => navigator.clipboard?.writeText(readBlock(block)),
        a: () => block.kind === 'agent' && (location.hash = linkTo(session.id, block.key)), e: () => block.kind === 'prompt' && onEdit(block),
      }),
      ...(event.target === card && { ArrowDown: next, ArrowUp: previous, Home: toTop, End: toEnd, Enter: fold, ' ': fold }),
    };
    const action = actions[event.key];
    if (action) take(event, action);
  };

  const button = (label, sign, run) => html`<button type="button" aria-label=${label} onClick=${run}>${sign}</button>`;
  return html`<div class="transcript-area">
    <div class="transcript" ref=${view} role="region" aria-label="Conversation" tabindex="0" onScroll=${onScroll} onKeyDown=${onKeyDown}>
      <div class="blocks" ref=${content}>${[...nodes.values()]}</div>
    </div>
    ${search !== null && html`<form class="search" role="search" onSubmit=${() => find(search, -1)}
        onKeyDown=${(event) => { if (event.key === 'Escape') take(event, () => setSearch(null)); }}>
      <input type="search" aria-label="Search the conversation" placeholder="Search the conversation" value=${search} ref=${focusOnce} onInput=${typed(setSearch)} />
      ${button('Previous match', '↑', () => find(search, -1))}${button('Next match', '↓', () => find(search, 1))}${button('Close the search', '✕', () => setSearch(null))}
    </form>`}
    ${isAway && html`<button class="new-below" aria-label=${hasNew ? 'New below: go to the end' : 'Go to the end'} onClick=${toEnd}>${hasNew ? 'New below ↓' : '↓'}</button>`}
  </div>`;
}

// Says once what a screen reader should hear: an answer that has ended, and what Odin waits for.
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
