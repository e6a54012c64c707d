"""The function and its webhook on this machine, on AWS's local runner: no account, no network. Ctrl-C ends it."""

from __future__ import annotations

import os

from webhook import webhook

from strands_durable.testing.aws_lambda import LocalLambda

PORT = int(os.environ.get("PORT", "8080"))

if __name__ == "__main__":
    os.environ["APPROVAL_WEBHOOK"] = f"http://127.0.0.1:{PORT}/questions"
    with LocalLambda({"trip-planner": "app:handler"}) as aws:
        print(f"export STRANDS_DURABLE_BACKEND='{aws.url('trip-planner')}'", flush=True)
        try:
            webhook(aws.client(), PORT).serve_forever()
        except KeyboardInterrupt:
            print("Ended, and so has everything that ran here.")
