// Runs before the page is drawn, so that a chosen theme never flashes in the other one.
try {
  const theme = localStorage.getItem("carp-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the system's own choice holds.
}
