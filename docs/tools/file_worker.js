// SPDX-License-Identifier: MIT
// The search runs in a worker, and a page that is opened from a folder may not start one. There a hidden frame takes its
// place: the worker's script runs in a window of its own, which has a worker's names.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      this.deliver = data => inside.dispatchEvent(new inside.MessageEvent("message", { data }))
      // Opened, so that no browser replaces the empty page, and with it the window's names, later
      inside.document.open()
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.started = new Promise((started, failed) => Object.assign(inside, { started, failed }))
      inside.document.write(`<script src="${new URL(script, document.baseURI)}" onload="started()" onerror="failed()"></script>`)
      inside.document.close()
    }

    postMessage(data) {
      this.started.then(() => this.deliver(data))
    }
  }
}
