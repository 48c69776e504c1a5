"""The service: answers over HTTP, and the page that shows them."""
