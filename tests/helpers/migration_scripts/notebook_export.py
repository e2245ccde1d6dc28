#!/usr/bin/env python
# coding: utf-8

# # Digits
# Exported from a notebook: everything at module level.

# In[1]:


import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from digits import load_digits


# In[2]:


torch.manual_seed(0)
X, y = load_digits()
X.shape, y.shape


# In[3]:


train_ds = TensorDataset(X[:1500], y[:1500])
valid_ds = TensorDataset(X[1500:], y[1500:])
bs = 50
train_dl = DataLoader(train_ds, batch_size=bs, shuffle=True)
valid_dl = DataLoader(valid_ds, batch_size=bs * 2)


# In[4]:


class Mnist_CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, kernel_size=3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(12, 10, kernel_size=3, stride=2, padding=1)

    def forward(self, xb):
        xb = xb.view(-1, 1, 8, 8)
        xb = F.relu(self.conv1(xb))
        xb = self.conv2(xb)
        xb = F.avg_pool2d(xb, 2)
        return xb.view(-1, xb.size(1))


model = Mnist_CNN()
model


# In[5]:


opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
losses = []


# In[6]:


for epoch in range(1):
    model.train()
    for xb, yb in train_dl:
        pred = model(xb)
        loss = F.cross_entropy(pred, yb)

        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
        print("step", len(losses) - 1, "loss", repr(losses[-1]))

    model.eval()
    with torch.no_grad():
        valid_loss = sum(F.cross_entropy(model(xb), yb, reduction="sum") for xb, yb in valid_dl)
    print("epoch", epoch, "valid", float(valid_loss) / len(valid_ds))


# In[7]:


len(losses)


# In[8]:


torch.save(model.state_dict(), "model.pt")
