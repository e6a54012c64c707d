"""The engines that executions can run on: one module each, imported only when its URL is used."""
