/** A model that says what a script tells it to: the Anthropic Messages API on loopback, without a credential. */
export { type ReceivedRequest, type RequestKind, textOf, userTexts } from "./request.ts";
export { type Handler, type ScriptedModel, type ScriptedModelOptions, startScriptedModel } from "./server.ts";
export { calls, fails, type ScriptedBlock, type ScriptedTurn, says, thinks } from "./turn.ts";
