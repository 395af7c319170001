// Browsers start no workers for pages that are opened as files. The search then runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessageIn = inside.postMessage.bind(inside);
      inside.postMessage = (data) => window.postMessage({frame: url, data}, "*");
      window.addEventListener("message", (event) => {
        if (event.data && event.data.frame === url) {
          this.dispatchEvent(new MessageEvent("message", {data: event.data.data}));
        }
      });
      this.ready = new Promise((resolve) => {
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        inside.document.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.postMessageIn(data, "*"));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
