import { load } from 'blueshift-lm';

const status = document.getElementById('status');
const answer = document.getElementById('answer');

document.getElementById('file').addEventListener('change', async (event) => {
  const [file] = event.target.files;
  answer.textContent = '';
  try {
    const model = await load(file, { onProgress: ({ bytes, total }) => (status.textContent = `${bytes} of ${total}`) });
    status.textContent = `${model.info.name} on ${model.info.adapter}`;
    for await (const text of model.generate('Why is the sky blue?', { maxTokens: 128 })) answer.append(text);
    model.dispose();
  } catch (error) {
    status.textContent = `${error.code ?? error.name}: ${error.message}`;
  }
});
