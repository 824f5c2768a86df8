// No browser starts a worker for a page that was opened from a folder. There the search of the theme runs in a
// hidden frame instead. The theme's offline plug-in loads this file by its name, in place of one from a network.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.frame = frame.contentWindow;
      this.frame.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      this.isLoaded = new Promise((resolve) => { script.onload = resolve; });
      script.src = url;
      frame.contentDocument.body.append(script);
    }

    async postMessage(data) {
      await this.isLoaded;
      this.frame.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
