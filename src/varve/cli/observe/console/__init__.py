"""The console: pages that show what the commands print, for whoever has its token. It changes nothing."""
