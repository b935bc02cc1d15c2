"""browser.py: a reader of the dashboard: Chromium, driven through a pipe. Looks at the page of a run, waits until an event has changed it,
asks for it without its token, presses the button and waits for the end of the run. Prints a line for each thing seen.

    python3 browser.py URL PROFILE_FOLDER
"""
import json
import os
import subprocess
import sys
import time

url, folder = sys.argv[1:3]
to_browser, from_here = os.pipe()
to_here, from_browser = os.pipe()


def give_pipes():  # the browser reads 3 and writes 4
    os.dup2(to_browser, 100)
    os.dup2(from_browser, 101)
    os.dup2(100, 3)
    os.dup2(101, 4)


browser = subprocess.Popen(
    ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--user-data-dir=" + folder, "about:blank"],
    preexec_fn=give_pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
os.close(to_browser)
os.close(from_browser)
answers = os.fdopen(to_here, "rb")
count = 0


def read_message():
    text = b""
    while True:
        c = answers.read(1)
        if not c:
            sys.exit("the browser has ended")
        if c == b"\0":
            return json.loads(text)
        text += c


def ask(method, session=None, **params):
    global count
    count += 1
    message = {"id": count, "method": method, "params": params}
    if session:
        message["sessionId"] = session
    os.write(from_here, json.dumps(message).encode() + b"\0")
    while True:
        answer = read_message()
        if answer.get("id") == count:
            if "error" in answer:
                sys.exit("%s: %s" % (method, answer["error"]))
            return answer["result"]


def open_page(address):
    target = ask("Target.createTarget", url=address)["targetId"]
    return ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]


def value(session, expression):
    return ask("Runtime.evaluate", session, expression=expression, returnByValue=True)["result"].get("value")


def wait_for(what, look, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look()
        if found:
            print("seen", what, flush=True)
            return found
        time.sleep(0.1)
    sys.exit("not seen: %s; the page says: %s" % (what, value(page, "document.body.innerText")))


try:
    page = open_page(url)
    progress = "document.getElementById('progress') && document.getElementById('progress').textContent"
    first = wait_for("progress", lambda: (lambda t: t if t and "update " in t else None)(value(page, progress)))
    wait_for("an event that changes it", lambda: (lambda t: t and t != first)(value(page, progress)))
    wait_for("a curve", lambda: value(page, "document.querySelectorAll('svg path').length > 3"))
    print("loads from elsewhere:", value(page, "performance.getEntriesByType('resource').filter(r => !r.name.startsWith(location.origin)).length"))
    stranger = open_page(url.split("?")[0])
    wait_for("a refusal without the token", lambda: "the token is missing or wrong" in (value(stranger, "document.body && document.body.innerText") or ""))
    value(page, "document.getElementById('stop').click()")
    wait_for("the button taken", lambda: value(page, "document.getElementById('stop').disabled"))
    wait_for("the end of the run", lambda: "stopped and saved" in (value(page, progress) or ""))
finally:
    browser.kill()
    browser.wait()
