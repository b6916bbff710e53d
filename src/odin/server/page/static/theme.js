// Runs before the first paint, so that a chosen theme does not flash in the other colors.
try {
  const theme = localStorage.getItem('odin:theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {}
